#pragma once

#include <cooperative_groups.h>

#include "compute/backends/cuda/boundary_terms.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/mix_pack.h"

// Expand, tap, collapse and norm of a packed shape: a cluster of blocks per row, one block per
// slice of channels, one thread per 8 channels of all streams.
namespace hadal::cuda {

inline constexpr int kUnitChannels = 8;
inline constexpr int kSliceUnits = MixShape::kSliceChannels / kUnitChannels;
inline constexpr int kRowsThreads = 96;  // kSliceUnits in whole warps

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
struct UnitCoefficients {
  float post[4], comb[16], pre[4];
};
__device__ __forceinline__ void expand_unit(uint4 (&x)[4], uint4 y, const UnitCoefficients& w) {
  const Channels out = widen(y);
  Channels in[4], next;
#pragma unroll
  for (int j = 0; j < 4; ++j) in[j] = widen(x[j]);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) {
      float s = __fmul_rn(in[0].v[i], w.comb[k]);
#pragma unroll
      for (int j = 1; j < 4; ++j) s = __fadd_rn(s, __fmul_rn(in[j].v[i], w.comb[j * 4 + k]));
      next.v[i] = __fadd_rn(__fmul_rn(out.v[i], w.post[k]), s);
    }
    x[k] = narrow(next);
  }
}
__device__ __forceinline__ uint4 collapse_unit(const uint4 (&x)[4], const float (&pre)[4]) {
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

// Sums of squares of a slice: lane l of 8 adds the units l, l + 8, ... in order, then the lanes
// pairwise. `mine` is {h, streams} of this thread's unit; thread 0 gets the sums.
__device__ __forceinline__ float2 slice_sums(float2 mine, int n_units, float2* buffer) {
  if (threadIdx.x < n_units) buffer[threadIdx.x] = mine;
  __syncthreads();
  float2 s = make_float2(0, 0);
  if (threadIdx.x < 32) {
    for (int u = threadIdx.x % 8; u < n_units; u += 8) {
      s.x += buffer[u].x;
      s.y += buffer[u].y;
    }
#pragma unroll
    for (int step = 4; step > 0; step /= 2) {
      s.x += __shfl_xor_sync(0xFFFFFFFFu, s.x, step);
      s.y += __shfl_xor_sync(0xFFFFFFFFu, s.y, step);
    }
  }
  return s;
}

__global__ void __launch_bounds__(kRowsThreads) boundary_rows_kernel(BoundaryTerms p) {
  namespace cg = cooperative_groups;
  __shared__ float2 units[kSliceUnits];
  __shared__ float2 slices[MixShape::kMaxSlices];
  asm volatile("griddepcontrol.launch_dependents;");
  const cg::cluster_group cluster = cg::this_cluster();
  const int n_slices = static_cast<int>(cluster.num_blocks());
  const int slice = static_cast<int>(cluster.block_rank());
  const int64_t t = blockIdx.x / n_slices;
  const bool expands = p.y != nullptr && t < p.n_expand;
  const bool taps = p.tap != nullptr && t < p.n_rows;
  const bool collapses = p.norm != nullptr && t < p.n_rows;
  const bool mixes = p.mix != nullptr && t < p.n_mix;
  if (p.mix != nullptr && threadIdx.x == 0 && blockIdx.x < p.n_tiles()) p.tickets[blockIdx.x] = 0;
  const bool sums_up = collapses || mixes;  // the same in all blocks of the row
  if (sums_up) cluster.barrier_arrive();

  const int n_units = min(kSliceUnits, static_cast<int>(p.d / kUnitChannels) - slice * kSliceUnits);
  const int64_t at =
      static_cast<int64_t>(slice * kSliceUnits + static_cast<int>(threadIdx.x)) * kUnitChannels;
  const bool has_unit = static_cast<int>(threadIdx.x) < n_units;
  uint4 h = {}, weight = {};
  float2 squares = make_float2(0, 0);
  if (has_unit) {
    uint16_t* row = p.streams + t * 4 * p.d + at;
    uint4 x[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = *reinterpret_cast<const uint4*>(row + j * p.d);
    UnitCoefficients w;
    if (expands) {
      const uint4 y = *reinterpret_cast<const uint4*>(p.y + t * p.y_stride + at);
#pragma unroll
      for (int j = 0; j < 4; ++j) w.post[j] = p.post[t * 4 + j];
#pragma unroll
      for (int j = 0; j < 16; ++j) w.comb[j] = p.comb[t * 16 + j];
      expand_unit(x, y, w);
#pragma unroll
      for (int j = 0; j < 4; ++j) *reinterpret_cast<uint4*>(row + j * p.d) = x[j];
    }
    if (taps) *reinterpret_cast<uint4*>(p.tap + t * p.tap_stride + at) = mean_unit(x);
    if (collapses) {
      weight = *reinterpret_cast<const uint4*>(p.norm + at);
#pragma unroll
      for (int j = 0; j < 4; ++j) w.pre[j] = p.pre_in[t * 4 + j];
      h = collapse_unit(x, w.pre);
      squares.x = square_sum(h);
    }
    if (mixes) squares.y = square_sum(x);
  }
  if (!sums_up) return;
  const float2 sums = slice_sums(squares, n_units, units);
  cluster.barrier_wait();  // all blocks of the row run: their memory may be written
  if (threadIdx.x < n_slices) {
    // Lane s of the first warp tells block s.
    *cluster.map_shared_rank(&slices[slice], threadIdx.x) = sums;
  }
  cluster.sync();
  float2 total = slices[0];
  for (int s = 1; s < n_slices; ++s) {
    total.x += slices[s].x;
    total.y += slices[s].y;
  }
  if (mixes && slice == 0 && threadIdx.x == 0) p.squares[t] = total.y;
  if (!collapses || !has_unit) return;
  const float r = __fdiv_rn(
      1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(total.x, static_cast<float>(p.d)), p.norm_eps)));
  *reinterpret_cast<uint4*>(p.h + t * p.h_stride + at) = norm_unit(h, weight, r);
}

}  // namespace hadal::cuda
