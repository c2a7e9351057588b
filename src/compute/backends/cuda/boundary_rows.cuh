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

// Sums of squares of a slice: lane l of 8 adds the units l, l + 8, ... in order, then the lanes
// pairwise. `mine` is {h, streams} of this thread's unit; the first warp gets the sums.
__device__ __forceinline__ float2 slice_sums(float2 mine, int n_units, float2* buffer) {
  if (static_cast<int>(threadIdx.x) < n_units) buffer[threadIdx.x] = mine;
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

// What a thread needs of one row, fetched while it works on the row before.
struct RowInput {
  uint4 x[4], y;
  float coefficient;  // thread i of 24: post, comb or pre
};
__device__ __forceinline__ RowInput fetch_row(const BoundaryTerms& p, int64_t t, int64_t at,
                                              bool has_unit) {
  RowInput in = {};
  if (has_unit) {
    const uint16_t* row = p.streams + t * 4 * p.d + at;
#pragma unroll
    for (int j = 0; j < 4; ++j) in.x[j] = *reinterpret_cast<const uint4*>(row + j * p.d);
    if (p.y != nullptr && t < p.n_expand)
      in.y = *reinterpret_cast<const uint4*>(p.y + t * p.y_stride + at);
  }
  const int i = threadIdx.x;
  if (i < 20 && p.y != nullptr && t < p.n_expand)
    in.coefficient = i < 4 ? p.post[t * 4 + i] : p.comb[t * 16 + i - 4];
  if (i >= 20 && i < 24 && p.norm != nullptr && t < p.n_rows)
    in.coefficient = p.pre_in[t * 4 + i - 20];
  return in;
}

// `n` rows by the clusters of the grid in turn.
__global__ void __launch_bounds__(kRowsThreads) boundary_rows_kernel(BoundaryTerms p, int64_t n) {
  namespace cg = cooperative_groups;
  __shared__ float2 units[2][kSliceUnits];
  __shared__ float2 slices[2][MixShape::kMaxSlices];
  __shared__ float coefficients[2][24];
  asm volatile("griddepcontrol.launch_dependents;");
  const cg::cluster_group cluster = cg::this_cluster();
  const int n_slices = static_cast<int>(cluster.num_blocks());
  const int slice = static_cast<int>(cluster.block_rank());
  const int n_units = min(kSliceUnits, static_cast<int>(p.d / kUnitChannels) - slice * kSliceUnits);
  const int64_t at =
      static_cast<int64_t>(slice * kSliceUnits + static_cast<int>(threadIdx.x)) * kUnitChannels;
  const bool has_unit = static_cast<int>(threadIdx.x) < n_units;
  const int64_t n_clusters = gridDim.x / n_slices;
  uint4 weight = {};
  if (has_unit && p.norm != nullptr) weight = *reinterpret_cast<const uint4*>(p.norm + at);
  RowInput next = fetch_row(p, blockIdx.x / n_slices, at, has_unit);
  cluster.sync();  // all blocks of the cluster run: their memory may be written
  int turn = 0;    // a buffer is written again only when all have read what it held
  for (int64_t t = blockIdx.x / n_slices; t < n; t += n_clusters, turn ^= 1) {
    const bool expands = p.y != nullptr && t < p.n_expand;
    const bool taps = p.tap != nullptr && t < p.n_rows;
    const bool collapses = p.norm != nullptr && t < p.n_rows;
    const bool mixes = p.mix != nullptr && t < p.n_mix;
    RowInput in = next;
    if (threadIdx.x < 24) coefficients[turn][threadIdx.x] = in.coefficient;
    if (t + n_clusters < n) next = fetch_row(p, t + n_clusters, at, has_unit);
    __syncthreads();
    const float* w = coefficients[turn];
    uint4 h = {};
    float2 squares = make_float2(0, 0);
    if (has_unit) {
      if (expands) {
        uint16_t* row = p.streams + t * 4 * p.d + at;
        expand_unit(in.x, in.y, w, w + 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) *reinterpret_cast<uint4*>(row + j * p.d) = in.x[j];
      }
      if (taps) *reinterpret_cast<uint4*>(p.tap + t * p.tap_stride + at) = mean_unit(in.x);
      if (collapses) {
        h = collapse_unit(in.x, w + 20);
        squares.x = square_sum(h);
      }
      if (mixes) squares.y = square_sum(in.x);
    }
    if (!collapses && !mixes) continue;  // the same in all blocks of the row
    const float2 sums = slice_sums(squares, n_units, units[turn]);
    if (static_cast<int>(threadIdx.x) < n_slices) {
      // Lane s of the first warp tells block s.
      *cluster.map_shared_rank(&slices[turn][slice], threadIdx.x) = sums;
    }
    cluster.sync();
    float2 total = slices[turn][0];
    for (int s = 1; s < n_slices; ++s) {
      total.x += slices[turn][s].x;
      total.y += slices[turn][s].y;
    }
    if (mixes && slice == 0 && threadIdx.x == 0) p.squares[t] = total.y;
    if (!collapses || !has_unit) continue;
    const float mean = __fdiv_rn(total.x, static_cast<float>(p.d));
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.norm_eps)));
    *reinterpret_cast<uint4*>(p.h + t * p.h_stride + at) = norm_unit(h, weight, r);
  }
}

}  // namespace hadal::cuda
