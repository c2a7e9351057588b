#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/experts.h"
#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/ops/ops.h"

// Products of few rows (thin.cuh). The same bits as launch_product.
namespace hadal::cuda {

// True if launch_thin_linear takes the rows: up to 8, and their values fit in shared memory.
bool thin_linear_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu);
// x is quantised on the way if `quantise`. Group g of the weights takes the columns from g * k of x
// and gives the columns from g * n of y.
void launch_thin_linear(const Packed& weight, device::Matrix<const uint16_t> x, bool quantise,
                        uint16_t* y, float* y_f32, int64_t y_stride, const Gpu& gpu,
                        cudaStream_t stream);

// Arrays of a moe_ffn of few rows: places are (row, choice), ascending by expert and row, then the
// shared expert's rows.
struct ThinExperts {
  const CudaExperts* experts = nullptr;
  uint16_t* act = nullptr;   // [places + T, d_inter]
  uint16_t* out = nullptr;   // [places + T, d_hidden]
  int32_t* place = nullptr;  // [T, top_k] place of a choice, written
};
bool thin_experts_fit(const CudaExperts& experts, int64_t n_rows, int64_t top_k, const Gpu& gpu);
// Everything but the sum over experts.
void launch_thin_experts(const ops::MoeArgs& args, const ThinExperts& arrays, const Gpu& gpu,
                         cudaStream_t stream);

}  // namespace hadal::cuda
