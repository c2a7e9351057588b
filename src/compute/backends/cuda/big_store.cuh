#pragma once

#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"

// Sums of a warpgroup, 64 outputs by kRows rows as wgmma leaves them, to rows of y.
namespace hadal::cuda {

inline constexpr int kStoreRows = 32;            // that pass through shared memory together
inline constexpr int kStorePitch = 64 * 2 + 16;  // bytes of a row there, free of bank conflicts
inline constexpr int kStoreBytes = 2 * kStoreRows * kStorePitch;  // two turns, of a warpgroup

struct BigResult {
  uint16_t* y;   // bf16, or
  float* y_f32;  // where the job's first row and the warpgroup's first output go
  int64_t stride;
  int n_rows, n_outputs;  // that exist
  bool aligned;           // y: 16 bytes at a time
};

__device__ __forceinline__ uint32_t bf16_round_pair(float low, float high) {
  uint32_t d;  // a NaN sum has one pattern already: the same as bf16_from_float
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

template <int kRows>
__device__ __forceinline__ void store_plain(const BigResult& r, const float (&sum)[kRows / 2],
                                            int warp, int lane) {
  const int g = lane / 4, c = lane % 4;
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) {
    const int out = warp * 16 + g + i / 2 % 2 * 8, row = i / 4 * 8 + c * 2 + i % 2;
    if (out >= r.n_outputs || row >= r.n_rows) continue;
    if (r.y_f32 != nullptr) {
      r.y_f32[row * r.stride + out] = sum[i];
    } else {
      r.y[row * r.stride + out] = bf16_from_float(sum[i]);
    }
  }
}

// `shared`: kStoreBytes of the warpgroup; `barrier`: its named barrier.
template <int kRows>
__device__ __forceinline__ void store_rows(const BigResult& r, const float (&sum)[kRows / 2],
                                           uint8_t* shared, int barrier, int warp, int lane) {
  static_assert(kRows % kStoreRows == 0);
#pragma unroll
  for (int part = 0; part < kRows / kStoreRows; ++part) {
    uint8_t* rows = shared + part % 2 * (kStoreRows * kStorePitch);
    // Four 8 x 8 matrices at a time: two of rows by two of outputs, transposed on the way.
    const uint32_t to = shared_address(rows) + (lane / 16 * 8 + lane % 8) * kStorePitch +
                        warp * 32 + lane / 8 % 2 * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* s = sum + part * (kStoreRows / 2) + half * 8;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                       to + half * 16 * kStorePitch),
                   "r"(bf16_round_pair(s[0], s[1])), "r"(bf16_round_pair(s[2], s[3])),
                   "r"(bf16_round_pair(s[4], s[5])), "r"(bf16_round_pair(s[6], s[7]))
                   : "memory");
    }
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    const int thread = warp * 32 + lane, column = thread % 8 * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 16 + thread / 8, at = part * kStoreRows + row;
      const uint4 v = *reinterpret_cast<const uint4*>(rows + row * kStorePitch + column * 2);
      if (at < r.n_rows && column < r.n_outputs)
        *reinterpret_cast<uint4*>(r.y + at * r.stride + column) = v;
    }
  }
  // With an odd number of parts the next job begins with the memory that this one ends with.
  if constexpr (kRows / kStoreRows % 2 != 0)
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
}

// Sums of a warpgroup, times `scale`, to rows of a list's tile; `to`: where the tile's first row
// and the warpgroup's first output go, of which there are n_outputs.
template <int kRows>
__device__ __forceinline__ void store_tile(uint16_t* to, int64_t stride, int n_rows, int n_outputs,
                                           float (&sum)[kRows / 2], float scale, uint8_t* shared,
                                           int barrier, int warp, int lane) {
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sum[i] *= scale;
  const BigResult result = {to, nullptr, stride, n_rows, n_outputs, true};
  store_rows<kRows>(result, sum, shared, barrier, warp, lane);
}

}  // namespace hadal::cuda
