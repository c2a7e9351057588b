#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"

namespace hadal::cuda {

// Rows [first, first + n_rows) of a call's row list, multiplied by group `group` of the weights.
struct RowTile {
  int32_t group = 0, first = 0, n_rows = 0;
};

inline constexpr int kTileRows = 32;

// y[i, c] = sum_k x[row(i), k] w[group(i)][c, k], summed as packed.h says.
struct Product {
  const Packed* weight = nullptr;
  const uint16_t* x = nullptr;  // staged (staging.h)
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // row of x for place i of the list; null: row i

  // Row list by tiles that a kernel made (device memory), at most `max_tiles` of them, or null:
  // every group takes rows [0, n_rows), group g the columns from g * k of x, and its outputs are
  // the columns from g * n of y.
  const RowTile* tiles = nullptr;
  const int32_t* n_tiles = nullptr;
  int32_t max_tiles = 0;
  int32_t n_rows = 0;

  uint16_t* y = nullptr;  // bf16, or
  float* y_f32 = nullptr;
  int64_t y_stride = 0;
};

void launch_product(const Product& product, const Gpu& gpu, cudaStream_t stream);

}  // namespace hadal::cuda
