#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/ops/ops.h"

namespace hadal::cuda {

// A slab of source rows on the device and where it goes.
struct RepackSlab {
  const uint8_t* weight;
  const uint8_t* scale;
  int64_t row_bytes;  // of the source
  int64_t n_rows, k, n_blocks;
  int64_t first;  // output of the slab's first row
  int exponent;   // added to a scale's byte to give the field
  int64_t head_bytes, strip_bytes;
  uint8_t* packed;  // the group
};

// Puts the slab's rows into the order of packed.h. Not for kF32.
void launch_repack(ops::WeightFormat format, const RepackSlab& slab, cudaStream_t stream);

}  // namespace hadal::cuda
