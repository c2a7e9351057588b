#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/device/view.h"

namespace hadal::cuda {

// y[t, c] = sum_k x[t, k] w[c, k] for f32 weights, without tensor cores: lane i of a warp adds the
// products of columns i, i + 32, ... by fma, then lanes 16, 8, 4, 2, 1 apart. One of y and y_f32 is
// set. Group g takes the columns from g * k of x and gives the columns from g * n of y.
void launch_f32_product(const Packed& weight, device::Matrix<const uint16_t> x, uint16_t* y,
                        float* y_f32, int64_t y_stride, const Gpu& gpu, cudaStream_t stream);

}  // namespace hadal::cuda
