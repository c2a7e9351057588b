#pragma once

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/boundary_terms.cuh"
#include "compute/backends/cuda/channels.cuh"
#include "compute/backends/cuda/mix_pack.h"

// Expand, tap, collapse and norm of a packed shape: one thread per unit, 8 channels of all streams.
namespace hadal::cuda {

inline constexpr int kSliceUnits = MixShape::kSliceChannels / kUnitChannels;

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
// Sum of squares of lane `lane` of 8 of a slice of `n_units` units: the units lane, lane + 8, ...
// in order. The lanes are then added pairwise, and the slices in order. What is absent adds 0.
__device__ __forceinline__ float2 lane_squares(const float2* units, int n_units, int lane) {
  constexpr int kEach = kSliceUnits / 8;
  float2 own[kEach], s = make_float2(0, 0);
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    own[i] = lane + 8 * i < n_units ? units[lane + 8 * i] : make_float2(0, 0);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    s.x += own[i].x;
    s.y += own[i].y;
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) {
    s.x += __shfl_xor_sync(0xFFFFFFFFu, s.x, step);
    s.y += __shfl_xor_sync(0xFFFFFFFFu, s.y, step);
  }
  return s;
}
__device__ __forceinline__ float2 add_slices(const float2* slices, int n) {
  float2 own[MixShape::kMaxSlices];
#pragma unroll
  for (int s = 0; s < MixShape::kMaxSlices; ++s) own[s] = s < n ? slices[s] : make_float2(0, 0);
  float2 total = own[0];
#pragma unroll
  for (int s = 1; s < MixShape::kMaxSlices; ++s) {
    total.x += own[s].x;
    total.y += own[s].y;
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
      for (int j = 0; j < 4; ++j) store_word(row + j * p.d, x[j]);
    }
    if (p.taps(t)) store_word(p.tap + t * p.tap_stride + at, mean_unit(x));
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
    store_word(p.h + t * p.h_stride + at, norm_unit(h, weight, r));
  }
};

// Thread i of 24: its coefficient of row t.
__device__ __forceinline__ float fetch_coefficient(const BoundaryTerms& p, int64_t t) {
  const int i = threadIdx.x;
  if (i < 20 && p.expands(t)) return i < 4 ? p.post[t * 4 + i] : p.comb[t * 16 + i - 4];
  if (i >= 20 && i < 24 && p.collapses(t)) return p.pre_in[t * 4 + i - 20];
  return 0;
}

// Eight bytes to the shared memory of block `rank` of the cluster, at what `to` and `barrier` are
// there: they count on that block's barrier when they have arrived.
__device__ __forceinline__ void tell_block(float2* to, uint64_t* barrier, int rank, float2 value) {
  uint32_t there, barrier_there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(barrier_there)
      : "r"(shared_address(barrier)), "r"(rank));
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(there),
      "f"(value.x), "f"(value.y), "r"(barrier_there)
      : "memory");
}

// Few rows: a cluster of blocks per row, one block per slice. Each tells all what its slice sums up
// to: the copies carry their own arrival, so that nobody waits for older writes.
inline constexpr int kClusterThreads = 96;  // kSliceUnits in whole warps
__global__ void __launch_bounds__(kClusterThreads) boundary_cluster_kernel(BoundaryTerms p) {
  __shared__ float2 units[kSliceUnits];
  __shared__ __align__(16) float2 slices[MixShape::kMaxSlices];
  __shared__ __align__(8) uint64_t told;
  __shared__ float coefficients[24];
  const int me = static_cast<int>(threadIdx.x);
  int n_slices, slice;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n_slices));
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(slice));
  const int n_units = min(kSliceUnits, static_cast<int>(p.d / kUnitChannels) - slice * kSliceUnits);
  const int64_t t = blockIdx.x / static_cast<unsigned>(n_slices);
  const bool sums_up = p.collapses(t) || p.mixes(t);  // the same in all blocks of the row
  if (me == 0) {
    barrier_init(&told, 1);
    barrier_init_done();
    barrier_arrive_expect(&told, static_cast<uint32_t>(n_slices * sizeof(float2)));
  }
  // Who has arrived may be told.
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  RowUnit unit = {};
  unit.at = static_cast<int64_t>(slice * kSliceUnits + me) * kUnitChannels;
  unit.exists = me < n_units;
  if (unit.exists && p.collapses(t))
    unit.weight = *reinterpret_cast<const uint4*>(p.norm + unit.at);
  if (p.overlap) wait_for_previous();
  let_next_start();
  unit.fetch(p, t);
  if (me < 24) coefficients[me] = fetch_coefficient(p, t);
  __syncthreads();
  const float2 squares = unit.work(p, t, coefficients);
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (!sums_up) return;
  if (unit.exists) units[me] = squares;
  __syncthreads();
  if (me < 32) {
    const float2 sums = lane_squares(units, n_units, me % 8);
    if (n_slices == 1) {
      if (me == 0) slices[0] = sums;
    } else if (me < n_slices) {
      tell_block(&slices[slice], &told, me, sums);
    }
  }
  if (n_slices == 1) {  // the launch has no clusters
    __syncthreads();
  } else {
    barrier_wait(&told, 0);
  }
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
