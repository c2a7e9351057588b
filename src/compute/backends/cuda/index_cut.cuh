#pragma once

#include "compute/backends/cuda/index_choose.cuh"

// Where the largest ranks of a row are cut off, by one block.
namespace hadal::cuda {

inline constexpr int kPickThreads = kSelectThreads;
inline constexpr int kPickWarps = kPickThreads / 32;
inline constexpr uint32_t kAll = 0xFFFFFFFFu;
inline constexpr int kBinBits = 10;  // a bin a thread

struct PickShared {
  uint32_t counts[2][kPickWarps];
  uint32_t before[2][kPickWarps];
  int32_t groups[kPickThreads];   // whose tops reach the bound, ascending
  uint32_t ranks[kPickThreads];   // that reach the bound, ascending by number
  uint16_t places[kPickThreads];  // of those: a place in `groups` times eight, and one in the group
  uint32_t histogram[kPickThreads];
  uint3 found;  // a bin, how many are above it, and in it; or a rank
  uint32_t few[32], n_few;
};

// Sums over the block. Two rounds of a kind may overlap, three not: each has a barrier.
struct Sums {
  PickShared& s;
  int lane, warp, scan_turn;
  __device__ explicit Sums(PickShared& shared)
      : s(shared),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) / 32),
        scan_turn(0) {}
  // The largest of one and the least of another of all threads. REQUIRES: another barrier before
  // the next sum of this kind.
  __device__ uint2 range(uint32_t mine, uint32_t low) {
    mine = __reduce_max_sync(kAll, mine);
    low = __reduce_min_sync(kAll, low);
    if (lane == 0) {
      s.counts[0][warp] = mine;
      s.counts[1][warp] = low;
    }
    __syncthreads();
    return {__reduce_max_sync(kAll, s.counts[0][lane]), __reduce_min_sync(kAll, s.counts[1][lane])};
  }
  // Of the warps before this one, given a warp's own; `all` is the block's.
  __device__ uint32_t before_warp(uint32_t of_warp, uint32_t& all) {
    scan_turn ^= 1;
    if (lane == 0) s.before[scan_turn][warp] = of_warp;
    __syncthreads();
    const uint32_t x = s.before[scan_turn][lane];
    all = __reduce_add_sync(kAll, x);
    return __reduce_add_sync(kAll, lane < warp ? x : 0);
  }
  // Of the threads before this one.
  __device__ uint32_t before_thread(uint32_t mine, uint32_t& all) {
    uint32_t up_to = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(kAll, up_to, step);
      if (lane >= step) up_to += other;
    }
    return before_warp(__shfl_sync(kAll, up_to, 31), all) + up_to - mine;
  }
};

// Where `wanted` of the ranks are cut off that each(f) calls f with, all of which lie in [low,
// high]; with `loose`, any cut that leaves no more than so many. A histogram over the range, and
// again over the bin that holds the cut, until it holds few: those are put in order. 0 and what is
// below `low` is not counted.
template <class Each>
__device__ RankCut cut_of(uint32_t wanted, uint32_t low, uint32_t high, uint32_t loose, Sums& sums,
                          Each each) {
  PickShared& s = sums.s;
  const auto me = static_cast<uint32_t>(threadIdx.x);
  uint32_t above = 0;
  low = max(low, 1u);
  while (true) {
    const int shift = max(0, 32 - kBinBits - __clz(static_cast<int>(high - low)));
    s.histogram[me] = 0;
    if (me == 0) s.found = {0, 0, 0};
    __syncthreads();
    each([&](uint32_t r) {
      if (r >= low && r <= high) atomicAdd(&s.histogram[(high - r) >> shift], 1u);
    });
    __syncthreads();
    const uint32_t mine = s.histogram[me];
    uint32_t all;
    const uint32_t before = above + sums.before_thread(mine, all);
    if (before < wanted && before + mine >= wanted) s.found = {me, before, mine};
    __syncthreads();
    const uint3 found = s.found;
    if (found.z == 0) return {0, 0};  // fewer than wanted: all
    above = found.y;
    high -= found.x << shift;
    const uint32_t span = (1u << shift) - 1;
    low = high - low > span ? high - span : low;
    if (above + found.z <= max(wanted, loose)) return {low - 1, 0};
    if (low == high) return {low, wanted - above};
    if (found.z > 32) {
      __syncthreads();  // all have read what is found
      continue;
    }
    // Those of the bin: how many are above each.
    if (me == 0) s.n_few = 0;
    __syncthreads();
    each([&](uint32_t r) {
      if (r >= low && r <= high) s.few[atomicAdd(&s.n_few, 1u)] = r;
    });
    __syncthreads();
    if (me < 32) {
      const uint32_t x = me < found.z ? s.few[me] : 0;
      uint32_t over = above, equal = 0;
      for (uint32_t i = 0; i < found.z; ++i) {
        const uint32_t other = s.few[i];
        over += other > x ? 1u : 0u;
        equal += other == x ? 1u : 0u;
      }
      if (x != 0 && over < wanted && over + equal >= wanted) s.found = {x, wanted - over, equal};
    }
    __syncthreads();
    return {s.found.x, s.found.y};
  }
}

__device__ __forceinline__ uint32_t lowest(const RankCut& cut) {
  return cut.equal == 0 ? cut.rank + 1 : cut.rank;
}

}  // namespace hadal::cuda
