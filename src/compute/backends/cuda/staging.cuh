#pragma once

#include "compute/backends/cuda/elements.cuh"

namespace hadal::cuda {

// Eight bf16 values as pairs.
struct Octet {
  uint32_t pair[4];
};

__device__ __forceinline__ Octet load_octet(const uint16_t* x, int64_t column, int64_t n_columns,
                                            bool aligned) {
  Octet o = {};
  if (aligned && column + 8 <= n_columns) {
    const uint4 v = *reinterpret_cast<const uint4*>(x + column);
    o.pair[0] = v.x, o.pair[1] = v.y, o.pair[2] = v.z, o.pair[3] = v.w;
    return o;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (column + j < n_columns)
      o.pair[j / 2] |= static_cast<uint32_t>(x[column + j]) << (j % 2 * 16);
  return o;
}

// AQ8 and back (docs/model.md 3.0) of a group of 32 that four neighbouring lanes hold, in place.
__device__ __forceinline__ void snap_octet(Octet& o) {
  float amax = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    amax = fmaxf(amax, fmaxf(fabsf(bf16_low(o.pair[j])), fabsf(bf16_high(o.pair[j]))));
  const uint32_t byte = aq8_scale(group_max<4>(amax));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    o.pair[j] =
        bf16_pair(aq8_value(bf16_low(o.pair[j]), byte), aq8_value(bf16_high(o.pair[j]), byte));
  }
}

}  // namespace hadal::cuda
