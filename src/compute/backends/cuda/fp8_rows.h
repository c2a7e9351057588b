#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/device/view.h"

// Rows for launch_big_list_fp8 (fp8_places.h).
namespace hadal::cuda {

// Row i of `out` is AQ8 of row index[i] of x, with one scale a window; zero for kNoRow, not made
// for kUnusedRow (wide.h), of which whole tiles of 8 are. A null index: row i. n_rows counts the
// rows of the result.
void launch_fp8_rows(device::Matrix<const uint16_t> x, const int32_t* index, int64_t n_rows,
                     uint8_t* out, cudaStream_t stream);

// The same of act = weight * silu(gate) * up (launch_swiglu). up [n, 2 d_inter]: gate, then up.
// row[i] below 0: not made, but `out` there is never used.
void launch_fp8_swiglu(const uint16_t* up, const float* weight, const int32_t* row, int64_t n,
                       int32_t d_inter, float limit, uint8_t* out, cudaStream_t stream);

}  // namespace hadal::cuda
