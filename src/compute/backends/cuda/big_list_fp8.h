#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/fp8_places.h"
#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/wide_jobs.h"

// Products of FP4 experts with many rows in E4M3, where the backend may (`cuda:fp8`): twice the
// rate of bf16, with other sums than the parity kernels give. A row's codes are those of AQ8; the
// powers of two of the four groups of a window become the largest of them, which changes a value
// only if it is 2^13.8 below the window's largest possible one. Weights are exact. 128 products are
// added by the tensor cores (some 14 bits), windows in f32.
//
// A row's bits do not depend on its place or its neighbours, but more than kFp8LeastRows rows must
// share the launch.
namespace hadal::cuda {

// Steps of decodes have at most 256 rows and stay as they are.
inline constexpr int64_t kFp8LeastRows = 257;

// Can products of `n_rows` quantised rows go here? Never by the rows' contents.
bool fp8_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu);
// Are experts that fit faster here than in the parity kernels (on an H200)? By the rows that one
// gets on average, and where half of the products are the routed experts' or more.
bool fp8_experts_pay(int64_t n_rows, int64_t top_k, int64_t n_experts);

struct Fp8Product {
  const Packed* weight = nullptr;  // FP4
  const uint8_t* x = nullptr;      // fp8_row_bytes(x_rows)
  int64_t x_rows = 0;

  // Of at most kFp8TileRows rows, by class: those of class c end at class_ends[c] (dispatch.h).
  const RowTile* tiles = nullptr;
  const int32_t* class_ends = nullptr;
  int32_t max_tiles = 0;

  uint16_t* y = nullptr;  // bf16, rows at multiples of 16 bytes
  int64_t y_stride = 0;
};
// REQUIRES: fp8_fits.
void launch_big_list_fp8(const Fp8Product& product, const Gpu& gpu, cudaStream_t stream);

}  // namespace hadal::cuda
