#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/channels.cuh"
#include "compute/backends/cuda/expert_rows.h"
#include "compute/backends/cuda/staging.cuh"

namespace hadal::cuda {
namespace {

// One thread 8 columns.
__global__ void __launch_bounds__(128)
    swiglu_kernel(const uint16_t* up, const float* weight, const int32_t* row, int64_t n_weighted,
                  int64_t n, int32_t d_inter, float limit, uint16_t* act) {
  wait_for_previous();
  let_next_start();
  const int64_t octet = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  const int64_t block = octet / 4, c = octet % 4, n_blocks = d_inter / 32;
  for (int64_t i = blockIdx.y; i < n; i += gridDim.y) {
    if (row[i] < 0) continue;
    Octet a = {};
    if (block < n_blocks) {
      a = gated_octet(up + i * 2 * d_inter, octet * 8, d_inter, limit,
                      i < n_weighted ? weight[i] : 1.0f);
    }
    snap_octet(a);
    if (block < n_blocks) store_tiled(act, i, block, static_cast<int>(c), n_blocks, a);
  }
}

// One thread 8 columns. `wide`: rows of y may be stored in words of 16 bytes.
__global__ void __launch_bounds__(128)
    combine_kernel(const uint16_t* out, const int32_t* place, int32_t top_k, int64_t n_places,
                   int64_t n_rows, int32_t d, uint16_t* y, int64_t y_stride, bool wide) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x) * kUnitChannels;
  wait_for_previous();
  let_next_start();
  if (column >= d) return;
  for (int64_t t = blockIdx.y; t < n_rows; t += gridDim.y) {
    Channels sum = {};
    const auto add = [&](int64_t row) {
      const Channels c = widen(fetch_unit(out + row * d + column, true));
#pragma unroll
      for (int i = 0; i < kUnitChannels; ++i) sum.v[i] = __fadd_rn(sum.v[i], c.v[i]);
    };
#pragma unroll 4
    for (int32_t j = 0; j < top_k; ++j) add(place[t * top_k + j]);
    add(n_places + t);
    store_unit(y + t * y_stride + column, narrow(sum), wide);
  }
}

unsigned grid_rows(int64_t n) {
  return static_cast<unsigned>(n < 2048 ? n : 2048);
}

}  // namespace

void launch_swiglu(const uint16_t* up, const float* weight, const int32_t* row, int64_t n_weighted,
                   int64_t n, int32_t d_inter, float limit, uint16_t* act, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((d_inter / 8 + 127) / 128), grid_rows(n));
  launch_overlapped(swiglu_kernel, grid, dim3(128), 0, stream, up, weight, row, n_weighted, n,
                    d_inter, limit, act);
}

void launch_combine(const uint16_t* out, const int32_t* place, int32_t top_k, int64_t n_places,
                    int64_t n_rows, int32_t d, uint16_t* y, int64_t y_stride, cudaStream_t stream) {
  HADAL_CHECK(d % kUnitChannels == 0, "experts give multiples of 8 values");
  const dim3 grid(static_cast<unsigned>((d / kUnitChannels + 127) / 128), grid_rows(n_rows));
  launch_overlapped(combine_kernel, grid, dim3(128), 0, stream, out, place, top_k, n_places, n_rows,
                    d, y, y_stride, units_aligned(y, y_stride));
}

}  // namespace hadal::cuda
