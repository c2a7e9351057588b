#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/expert_rows.h"
#include "compute/backends/cuda/staging.cuh"

namespace hadal::cuda {
namespace {

// One thread 8 columns.
__global__ void __launch_bounds__(128)
    swiglu_kernel(const uint16_t* up, const float* weight, int64_t n_weighted, int64_t n,
                  int32_t d_inter, float limit, uint16_t* act) {
  const int64_t columns = (d_inter + 31) / 32 * 32;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
  const bool aligned = d_inter % 8 == 0;
  for (int64_t i = blockIdx.y; i < n; i += gridDim.y) {
    const uint16_t* row = up + i * 2 * d_inter;
    Octet a = {};
    if (column < columns) {
      const Octet gate = load_octet(row, column, d_inter, aligned);
      const Octet mult = load_octet(row + d_inter, column, d_inter, aligned);
      const float w = i < n_weighted ? weight[i] : 1.0f;
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t gp = gate.pair[j / 2], up_pair = mult.pair[j / 2];
        float g = j % 2 == 0 ? bf16_low(gp) : bf16_high(gp);
        float u = j % 2 == 0 ? bf16_low(up_pair) : bf16_high(up_pair);
        if (limit > 0) {
          g = fminf(g, limit);
          u = fmaxf(fminf(u, limit), -limit);
        }
        const auto e = static_cast<float>(exp_f64(-static_cast<double>(g)));
        v[j] = __fmul_rn(__fmul_rn(__fdiv_rn(g, __fadd_rn(1.0f, e)), u), w);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) a.pair[j] = bf16_pair(v[2 * j], v[2 * j + 1]);
    }
    snap_octet(a);
    if (column < columns) {
      *reinterpret_cast<uint4*>(act + i * columns + column) =
          make_uint4(a.pair[0], a.pair[1], a.pair[2], a.pair[3]);
    }
  }
}

__global__ void __launch_bounds__(256)
    combine_kernel(const uint16_t* out, const int32_t* place, int32_t top_k, int64_t n_places,
                   int64_t n_rows, int32_t d, uint16_t* y, int64_t y_stride) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  wait_for_previous();
  let_next_start();
  if (column >= d) return;
  for (int64_t t = blockIdx.y; t < n_rows; t += gridDim.y) {
    float sum = 0;
    for (int32_t j = 0; j < top_k; ++j)
      sum = __fadd_rn(sum,
                      bf16_to_float(out[place[t * top_k + j] * static_cast<int64_t>(d) + column]));
    sum = __fadd_rn(sum, bf16_to_float(out[(n_places + t) * d + column]));
    y[t * y_stride + column] = bf16_from_float(sum);
  }
}

unsigned grid_rows(int64_t n) {
  return static_cast<unsigned>(n < 65535 ? n : 65535);
}

}  // namespace

void launch_swiglu(const uint16_t* up, const float* weight, int64_t n_weighted, int64_t n,
                   int32_t d_inter, float limit, uint16_t* act, cudaStream_t stream) {
  const int64_t octets = (d_inter + 31) / 32 * 4;
  const dim3 grid(static_cast<unsigned>((octets + 127) / 128), grid_rows(n));
  swiglu_kernel<<<grid, 128, 0, stream>>>(up, weight, n_weighted, n, d_inter, limit, act);
}

void launch_combine(const uint16_t* out, const int32_t* place, int32_t top_k, int64_t n_places,
                    int64_t n_rows, int32_t d, uint16_t* y, int64_t y_stride, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((d + 255) / 256), grid_rows(n_rows));
  launch_overlapped(combine_kernel, grid, dim3(256), 0, stream, out, place, top_k, n_places, n_rows,
                    d, y, y_stride);
}

}  // namespace hadal::cuda
