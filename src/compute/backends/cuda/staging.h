#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/device/view.h"

namespace hadal::cuda {

// Rows of activations as the product kernels read them: bf16, `blocks * 32` columns, the last ones
// zero, rows of the same length without gaps, aligned to 16 bytes.
inline int64_t staged_columns(int64_t k) {
  return (k + 31) / 32 * 32;
}
inline uint64_t staged_bytes(int64_t n_rows, int64_t k) {
  return static_cast<uint64_t>(n_rows * staged_columns(k) * 2);
}

// out[t] = AQ8 of x[t] as bf16 numbers (`quantise`; x has a multiple of 32 columns), or x[t].
void launch_stage(device::Matrix<const uint16_t> x, bool quantise, uint16_t* out,
                  cudaStream_t stream);

}  // namespace hadal::cuda
