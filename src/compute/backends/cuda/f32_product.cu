#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/f32_product.h"

namespace hadal::cuda {
namespace {

constexpr int kWarps = 8;

struct Call {
  PackedView w;
  const uint16_t* x;
  int64_t x_stride, n_rows;
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
  bool overlap;
};

// One warp an output.
__global__ void __launch_bounds__(kWarps * 32) f32_product_kernel(Call call) {
  follow_previous(call.overlap);
  const int lane = threadIdx.x % 32;
  const int64_t k = call.w.k, width = static_cast<int64_t>(call.w.n) * call.w.n_groups;
  for (int64_t job = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       job < width * call.n_rows; job += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t column = job % width, row = job / width;
    const auto* w = reinterpret_cast<const float*>(call.w.weight) + column * k;
    const uint16_t* x = call.x + row * call.x_stride + column / call.w.n * k;
    float sum = 0;
    for (int64_t i = lane; i < k; i += 32) sum = fmaf(bf16_to_float(x[i]), w[i], sum);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (lane != 0) continue;
    if (call.y_f32 != nullptr) {
      call.y_f32[row * call.y_stride + column] = sum;
    } else {
      call.y[row * call.y_stride + column] = bf16_from_float(sum);
    }
  }
}

}  // namespace

void launch_f32_product(const Packed& weight, device::Matrix<const uint16_t> x, uint16_t* y,
                        float* y_f32, int64_t y_stride, const Gpu& gpu, cudaStream_t stream) {
  const Call call = {weight.view(), x.data, x.stride, x.n_rows, y, y_f32, y_stride, gpu.overlap};
  launch_following(gpu.overlap, 1, f32_product_kernel,
                   dim3(static_cast<unsigned>(gpu.sm_count) * 8), dim3(kWarps * 32), 0, stream,
                   call);
}

}  // namespace hadal::cuda
