#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/wide_jobs.h"
#include "compute/device/view.h"

namespace hadal::cuda {

// Rows for launch_wide: tiles of 8 rows by 32 columns, as 4 core matrices (8 rows by 16 bytes) of
// the shared-memory operand of wgmma, [row / 8][column / 32][core][row % 8][8]. Rows and columns
// are filled up with zeros.
inline int64_t tiled_values(int64_t n_rows, int64_t k) {
  return (n_rows + 7) / 8 * 8 * ((k + 31) / 32 * 32);
}
// x (AQ8 if `quantise`) in that order. Row i is row index[i] of x, zero where that is kNoRow, and
// not made where it is kUnusedRow; a null index: row i. n_rows counts the rows of the result,
// without an index those of x.
inline constexpr int32_t kNoRow = -1, kUnusedRow = -2;
void launch_tile_rows(device::Matrix<const uint16_t> x, const int32_t* index, int64_t n_rows,
                      bool quantise, uint16_t* out, cudaStream_t stream);

// y[i, c] = sum_k x[i, k] w[group(i)][c, k], summed as packed.h says.
struct WideProduct {
  const Packed* weight = nullptr;
  const uint16_t* x = nullptr;  // tiled
  int64_t x_columns = 0;        // of a row of x, a multiple of 32

  // Tiles that a kernel made (device memory), at most max_tiles; or null: every group takes rows
  // [0, n_rows), group g the columns from g * k of x, and gives the columns from g * n of y.
  const RowTile* tiles = nullptr;
  const int32_t* n_tiles = nullptr;
  int32_t max_tiles = 0;
  int32_t n_rows = 0;

  uint16_t* y = nullptr;  // bf16, or
  float* y_f32 = nullptr;
  int64_t y_stride = 0;
  float* slices = nullptr;  // wide_slices_bytes(), used without tiles
};

// Any number of rows; weights not kF32. The same bits as launch_thin_linear.
void launch_wide(const WideProduct& product, const Gpu& gpu, cudaStream_t stream);

}  // namespace hadal::cuda
