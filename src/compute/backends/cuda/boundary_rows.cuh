#pragma once

#include <cooperative_groups.h>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/boundary_terms.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/mix_pack.h"

// Expand, tap, collapse and norm of a packed shape: one thread per unit, 8 channels of all streams.
namespace hadal::cuda {

inline constexpr int kUnitChannels = 8;
inline constexpr int kSliceUnits = MixShape::kSliceChannels / kUnitChannels;

// Eight bf16 channels of one stream.
struct Channels {
  float v[kUnitChannels];
};
__device__ __forceinline__ Channels widen(uint4 bits) {
  Channels c;
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    c.v[2 * i] = bf16_low(words[i]);
    c.v[2 * i + 1] = bf16_high(words[i]);
  }
  return c;
}
// Nearest even, two at a time; a NaN becomes the canonical one.
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__device__ __forceinline__ uint4 narrow(const Channels& c) {
  return make_uint4(narrow_pair(c.v[0], c.v[1]), narrow_pair(c.v[2], c.v[3]),
                    narrow_pair(c.v[4], c.v[5]), narrow_pair(c.v[6], c.v[7]));
}

// One unit of a row in the order of the reference: X, then what is wanted of the new X.
__device__ __forceinline__ void expand_unit(uint4 (&x)[4], uint4 y, const float* post,
                                            const float* comb) {
  const Channels out = widen(y);
  Channels in[4], next;
#pragma unroll
  for (int j = 0; j < 4; ++j) in[j] = widen(x[j]);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) {
      float s = __fmul_rn(in[0].v[i], comb[k]);
#pragma unroll
      for (int j = 1; j < 4; ++j) s = __fadd_rn(s, __fmul_rn(in[j].v[i], comb[j * 4 + k]));
      next.v[i] = __fadd_rn(__fmul_rn(out.v[i], post[k]), s);
    }
    x[k] = narrow(next);
  }
}
__device__ __forceinline__ uint4 collapse_unit(const uint4 (&x)[4], const float* pre) {
  Channels s = widen(x[0]);
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) s.v[i] = __fmul_rn(s.v[i], pre[0]);
#pragma unroll
  for (int j = 1; j < 4; ++j) {
    const Channels a = widen(x[j]);
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) s.v[i] = __fadd_rn(s.v[i], __fmul_rn(a.v[i], pre[j]));
  }
  return narrow(s);
}
__device__ __forceinline__ uint4 mean_unit(const uint4 (&x)[4]) {
  Channels s = widen(x[0]);
#pragma unroll
  for (int j = 1; j < 4; ++j) {
    const Channels a = widen(x[j]);
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) s.v[i] = __fadd_rn(s.v[i], a.v[i]);
  }
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) s.v[i] = __fmul_rn(s.v[i], 0.25f);
  return narrow(s);
}
__device__ __forceinline__ float square_sum(uint4 bits) {
  const Channels c = widen(bits);
  float s = 0;
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) s = fmaf(c.v[i], c.v[i], s);
  return s;
}
__device__ __forceinline__ float square_sum(const uint4 (&x)[4]) {
  return (square_sum(x[0]) + square_sum(x[1])) + (square_sum(x[2]) + square_sum(x[3]));
}
__device__ __forceinline__ uint4 norm_unit(uint4 h, uint4 weight, float r) {
  const Channels a = widen(h), w = widen(weight);
  Channels out;
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) out.v[i] = __fmul_rn(w.v[i], __fmul_rn(a.v[i], r));
  return narrow(out);
}

// Sum of squares of lane `lane` of 8 of a slice of `n_units` units: the units lane, lane + 8, ...
// in order. The lanes are then added pairwise, and the slices in order.
__device__ __forceinline__ float2 lane_squares(const float2* units, int n_units, int lane) {
  float2 s = make_float2(0, 0);
  for (int u = lane; u < n_units; u += 8) {
    s.x += units[u].x;
    s.y += units[u].y;
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) {
    s.x += __shfl_xor_sync(0xFFFFFFFFu, s.x, step);
    s.y += __shfl_xor_sync(0xFFFFFFFFu, s.y, step);
  }
  return s;
}
__device__ __forceinline__ float2 add_slices(const float2* slices, int n) {
  float2 total = slices[0];
  for (int s = 1; s < n; ++s) {
    total.x += slices[s].x;
    total.y += slices[s].y;
  }
  return total;
}

// What one thread does with its unit of one row.
struct RowUnit {
  uint4 x[4], y, h, weight;
  int64_t at;  // its first channel
  bool exists;

  __device__ void fetch(const BoundaryTerms& p, int64_t t) {
    if (!exists) return;
    const uint16_t* row = p.streams + t * 4 * p.d + at;
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = *reinterpret_cast<const uint4*>(row + j * p.d);
    if (p.expands(t)) y = *reinterpret_cast<const uint4*>(p.y + t * p.y_stride + at);
  }
  // Expand, tap, collapse. `w`: post [4], comb [16], pre [4]. Gives the sums of squares of h and of
  // the streams.
  __device__ float2 work(const BoundaryTerms& p, int64_t t, const float* w) {
    float2 squares = make_float2(0, 0);
    if (!exists) return squares;
    if (p.expands(t)) {
      uint16_t* row = p.streams + t * 4 * p.d + at;
      expand_unit(x, y, w, w + 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) *reinterpret_cast<uint4*>(row + j * p.d) = x[j];
    }
    if (p.taps(t)) *reinterpret_cast<uint4*>(p.tap + t * p.tap_stride + at) = mean_unit(x);
    if (p.collapses(t)) {
      h = collapse_unit(x, w + 20);
      squares.x = square_sum(h);
    }
    if (p.mixes(t)) squares.y = square_sum(x);
    return squares;
  }
  __device__ void finish(const BoundaryTerms& p, int64_t t, float2 total) {
    if (p.mixes(t) && at == 0 && exists) p.squares[t] = total.y;
    if (!p.collapses(t) || !exists) return;
    const float mean = __fdiv_rn(total.x, static_cast<float>(p.d));
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.norm_eps)));
    *reinterpret_cast<uint4*>(p.h + t * p.h_stride + at) = norm_unit(h, weight, r);
  }
};

// Thread i of 24: its coefficient of row t.
__device__ __forceinline__ float fetch_coefficient(const BoundaryTerms& p, int64_t t) {
  const int i = threadIdx.x;
  if (i < 20 && p.expands(t)) return i < 4 ? p.post[t * 4 + i] : p.comb[t * 16 + i - 4];
  if (i >= 20 && i < 24 && p.collapses(t)) return p.pre_in[t * 4 + i - 20];
  return 0;
}

// Few rows: a cluster of blocks per row, one block per slice.
inline constexpr int kClusterThreads = 96;  // kSliceUnits in whole warps
__global__ void __launch_bounds__(kClusterThreads) boundary_cluster_kernel(BoundaryTerms p) {
  namespace cg = cooperative_groups;
  __shared__ float2 units[kSliceUnits];
  __shared__ float2 slices[MixShape::kMaxSlices];
  __shared__ float coefficients[24];
  expect_weights(p.overlap, p.norm, static_cast<int>(p.d) * 2);
  if (p.overlap) wait_for_previous();
  let_next_start();
  const cg::cluster_group cluster = cg::this_cluster();
  const int n_slices = static_cast<int>(cluster.num_blocks());
  const int slice = static_cast<int>(cluster.block_rank());
  const int n_units = min(kSliceUnits, static_cast<int>(p.d / kUnitChannels) - slice * kSliceUnits);
  const int64_t t = blockIdx.x / n_slices;
  RowUnit unit = {};
  unit.at =
      static_cast<int64_t>(slice * kSliceUnits + static_cast<int>(threadIdx.x)) * kUnitChannels;
  unit.exists = static_cast<int>(threadIdx.x) < n_units;
  unit.fetch(p, t);
  if (unit.exists && p.collapses(t))
    unit.weight = *reinterpret_cast<const uint4*>(p.norm + unit.at);
  if (threadIdx.x < 24) coefficients[threadIdx.x] = fetch_coefficient(p, t);
  const bool sums_up = p.collapses(t) || p.mixes(t);  // the same in all blocks of the row
  if (sums_up) cluster.barrier_arrive();
  __syncthreads();
  const float2 squares = unit.work(p, t, coefficients);
  if (!sums_up) return;
  if (unit.exists) units[threadIdx.x] = squares;
  __syncthreads();
  float2 sums = {};
  if (threadIdx.x < 32) sums = lane_squares(units, n_units, threadIdx.x % 8);
  cluster.barrier_wait();  // all blocks of the row run: their memory may be written
  // Lane s of the first warp tells block s.
  if (static_cast<int>(threadIdx.x) < n_slices)
    *cluster.map_shared_rank(&slices[slice], threadIdx.x) = sums;
  cluster.sync();
  unit.finish(p, t, add_slices(slices, n_slices));
}

// Many rows: a block per row at a time, which fetches the next row while it works.
inline constexpr int kBlockThreads = MixShape::kMaxSlices * kSliceUnits;
__global__ void __launch_bounds__(kBlockThreads, 1)
    boundary_block_kernel(BoundaryTerms p, int64_t n) {
  __shared__ float2 units[2][kBlockThreads];
  __shared__ float2 slices[2][MixShape::kMaxSlices];
  __shared__ float coefficients[2][24];
  expect_weights(p.overlap, p.norm, static_cast<int>(p.d) * 2);
  if (p.overlap) wait_for_previous();
  let_next_start();
  const int me = threadIdx.x, n_units = static_cast<int>(p.d / kUnitChannels);
  const int n_slices = (n_units + kSliceUnits - 1) / kSliceUnits;
  RowUnit unit = {};
  unit.at = static_cast<int64_t>(me) * kUnitChannels;
  unit.exists = me < n_units;
  if (unit.exists && p.norm != nullptr)
    unit.weight = *reinterpret_cast<const uint4*>(p.norm + unit.at);
  RowUnit next = unit;
  next.fetch(p, blockIdx.x);
  float coefficient = fetch_coefficient(p, blockIdx.x);
  int turn = 0;  // a buffer is written again only when all have read what it held
  for (int64_t t = blockIdx.x; t < n; t += gridDim.x, turn ^= 1) {
#pragma unroll
    for (int j = 0; j < 4; ++j) unit.x[j] = next.x[j];
    unit.y = next.y;
    if (me < 24) coefficients[turn][me] = coefficient;
    if (t + gridDim.x < n) {
      next.fetch(p, t + gridDim.x);
      coefficient = fetch_coefficient(p, t + gridDim.x);
    }
    __syncthreads();
    units[turn][me] = unit.work(p, t, coefficients[turn]);
    if (!p.collapses(t) && !p.mixes(t)) continue;  // the same in all threads
    __syncthreads();
    const int slice = me / 8;
    if (me < MixShape::kMaxSlices * 8) {
      const int here = max(0, min(kSliceUnits, n_units - slice * kSliceUnits));
      const float2 s = lane_squares(units[turn] + slice * kSliceUnits, here, me % 8);
      if (me % 8 == 0) slices[turn][slice] = s;
    }
    __syncthreads();
    unit.finish(p, t, add_slices(slices[turn], n_slices));
  }
}

}  // namespace hadal::cuda
