#include "compute/backends/cuda/staging.cuh"
#include "compute/backends/cuda/staging.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 128;

// One thread 8 columns; blockIdx.y the row (in turns beyond the grid's limit).
template <bool kQuantise>
__global__ void stage_kernel(const uint16_t* x, int64_t stride, int64_t n_rows, int64_t k,
                             int64_t columns, bool aligned, uint16_t* out) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 8;
  for (int64_t row = blockIdx.y; row < n_rows; row += gridDim.y) {
    Octet o = {};
    if (column < columns) o = load_octet(x + row * stride, column, k, aligned);
    if constexpr (kQuantise) snap_octet(o);  // whole warps come here
    if (column < columns) {
      *reinterpret_cast<uint4*>(out + row * columns + column) =
          make_uint4(o.pair[0], o.pair[1], o.pair[2], o.pair[3]);
    }
  }
}

}  // namespace

void launch_stage(device::Matrix<const uint16_t> x, bool quantise, uint16_t* out,
                  cudaStream_t stream) {
  if (x.n_rows == 0) return;
  const int64_t columns = staged_columns(x.n_cols);
  const bool aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  const dim3 grid(static_cast<unsigned>((columns / 8 + kThreads - 1) / kThreads),
                  static_cast<unsigned>(x.n_rows < 65535 ? x.n_rows : 65535));
  if (quantise) {
    stage_kernel<true><<<grid, kThreads, 0, stream>>>(x.data, x.stride, x.n_rows, x.n_cols, columns,
                                                      aligned, out);
  } else {
    stage_kernel<false><<<grid, kThreads, 0, stream>>>(x.data, x.stride, x.n_rows, x.n_cols,
                                                       columns, aligned, out);
  }
}

}  // namespace hadal::cuda
