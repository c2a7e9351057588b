#pragma once

#include <cooperative_groups.h>

#include "compute/backends/cuda/index_job.cuh"

// The largest ranks of a row, ascending by number, by a cluster of blocks: a radix descent of 11,
// 11 and 10 bits over histograms in shared memory that the blocks add up, then one ordered pass
// that writes. Counts are integers and numbers are placed by their order, so nothing depends on
// timing.
namespace hadal::cuda {

namespace cg = cooperative_groups;

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectBlocks = 8;
inline constexpr int kSelectBins = 2048;

struct SelectShared {
  uint32_t histogram[kSelectBins];
  uint32_t total[kSelectBins];
  uint32_t warp_total[32];
  uint3 found;  // the bin, what is wanted of it, and whether that is all of it
  uint2 warp_counts[kSelectThreads / 32];
  uint2 counts[kSelectBlocks];
};

// A warp has 32 `per` numbers of a row's in sequence, of which a lane takes every 32nd; the
// cluster's warps follow each other.
struct SelectShare {
  int first, per, count;
  __device__ SelectShare(int n, int blocks, int block) : count(n) {
    const int warps = blocks * kSelectThreads / 32;
    per = (n + warps * 32 - 1) / (warps * 32);
    const int warp = (block * kSelectThreads + static_cast<int>(threadIdx.x)) / 32;
    first = warp * 32 * per + static_cast<int>(threadIdx.x) % 32;
  }
  // Calls f(number, rank) in order, four at a time for the sake of their loads; what is past the
  // end has rank 0. All lanes of the warp take part in each call.
  template <class Load, class F>
  __device__ __forceinline__ void each(Load load, F f) const {
    for (int j = 0; j < per; j += 4) {
      uint32_t ranks[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int number = first + 32 * (j + i);
        ranks[i] = j + i < per && number < count ? load(number) : 0;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (j + i < per) f(first + 32 * (j + i), ranks[i]);
    }
  }
};

// Inclusive sums over the block's threads in order.
__device__ inline uint32_t block_scan(uint32_t x, uint32_t* warp_total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, x, step);
    if (lane >= step) x += other;
  }
  __syncthreads();  // the last user of warp_total is done
  if (lane == 31) warp_total[warp] = x;
  __syncthreads();
  uint32_t t = warp_total[lane];
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, t, step);
    if (lane >= step) t += other;
  }
  const uint32_t before = __shfl_sync(0xFFFFFFFFu, t, max(warp - 1, 0));
  return x + (warp > 0 ? before : 0);
}

struct RankCut {
  uint32_t rank;   // all above it are chosen
  uint32_t equal;  // and so many that are equal to it
};

template <class Load>
__device__ RankCut find_cut(const SelectShare& share, Load load, uint32_t wanted, SelectShared& s) {
  cg::cluster_group cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const auto block = static_cast<int>(cluster.block_rank());
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t prefix = 0, mask = 0;
#pragma unroll 1
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = pass == 0 ? 21 : pass == 1 ? 10 : 0, bins = pass < 2 ? 2048 : 1024;
    for (int i = thread; i < bins; i += kSelectThreads) s.histogram[i] = 0;
    __syncthreads();
    // Rank 0 is what cannot be chosen, or is past the end.
    share.each(load, [&](int, uint32_t r) {
      if ((r & mask) == prefix && r != 0)
        atomicAdd(&s.histogram[r >> shift & static_cast<uint32_t>(bins - 1)], 1u);
    });
    const uint32_t* total = s.histogram;
    if (blocks == 1) {
      __syncthreads();
    } else {
      cluster.sync();
      // Each block adds up a part of the bins and tells all.
      const int part = bins / blocks;
      for (int i = thread; i < bins; i += kSelectThreads) {
        const int bin = block * part + i / blocks, b = i % blocks;
        uint32_t x = cluster.map_shared_rank(s.histogram, b)[bin];
        for (int step = 1; step < blocks; step *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
        cluster.map_shared_rank(s.total, b)[bin] = x;
      }
      cluster.sync();
      total = s.total;
    }
    // From the highest bin down: where `wanted` is reached.
    const int per = bins / kSelectThreads, top = bins - 1 - thread * per;
    uint32_t mine = 0;
    for (int i = 0; i < per; ++i) mine += total[top - i];
    const uint32_t up_to = block_scan(mine, s.warp_total);
    if (thread == kSelectThreads - 1 && up_to < wanted)
      s.found = {0, 0, 1};  // fewer than wanted: all
    uint32_t before = up_to - mine;
    if (before < wanted && up_to >= wanted) {
      int bin = top;
      while (before + total[bin] < wanted) before += total[bin--];
      s.found = {static_cast<uint32_t>(bin), wanted - before,
                 total[bin] == wanted - before ? 1u : 0u};
    }
    __syncthreads();
    prefix |= s.found.x << shift;
    mask |= static_cast<uint32_t>(bins - 1) << shift;
    wanted = s.found.y;
    // The whole bin is wanted: what it begins with is enough. (Of an empty row: everything above
    // 0.)
    if (s.found.z != 0) return {prefix > 0 ? prefix - 1 : 0, 0};
  }
  return {prefix, wanted};
}

// Writes the numbers of the `k` largest ranks of `count` (all the cluster's threads take part);
// returns how many. Equal ranks: the lower number wins; rank 0 is never chosen.
template <class Load, class Number>
__device__ int choose(int count, int k, Load load, Number number, int32_t* out, SelectShared& s) {
  cg::cluster_group cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const auto block = static_cast<int>(cluster.block_rank());
  const SelectShare share(count, blocks, block);
  const RankCut cut = find_cut(share, load, static_cast<uint32_t>(min(count, k)), s);
  const auto above = [&](uint32_t r) { return __ballot_sync(0xFFFFFFFFu, r > cut.rank); };
  const auto equal = [&](uint32_t r) {
    return __ballot_sync(0xFFFFFFFFu, r == cut.rank && r != 0 && cut.equal != 0);
  };
  uint2 mine = {0, 0};  // the warp's: above the cut, equal to it
  share.each(load, [&](int, uint32_t r) {
    mine.x += static_cast<uint32_t>(__popc(above(r)));
    mine.y += static_cast<uint32_t>(__popc(equal(r)));
  });
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if (lane == 0) s.warp_counts[warp] = mine;
  __syncthreads();
  // Candidates before this warp, and of the block: a scan over the warps in every warp.
  const uint2 c = s.warp_counts[lane];
  uint2 up_to = c;
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t x = __shfl_up_sync(0xFFFFFFFFu, up_to.x, step);
    const uint32_t y = __shfl_up_sync(0xFFFFFFFFu, up_to.y, step);
    if (lane >= step) up_to = {up_to.x + x, up_to.y + y};
  }
  uint2 at = {__shfl_sync(0xFFFFFFFFu, up_to.x - c.x, warp),
              __shfl_sync(0xFFFFFFFFu, up_to.y - c.y, warp)};
  uint2 all = {__shfl_sync(0xFFFFFFFFu, up_to.x, 31), __shfl_sync(0xFFFFFFFFu, up_to.y, 31)};
  if (blocks > 1) {
    if (threadIdx.x < static_cast<unsigned>(blocks))
      cluster.map_shared_rank(s.counts, threadIdx.x)[block] = all;
    cluster.sync();
    all = {0, 0};
    for (int b = 0; b < blocks; ++b) {
      if (b < block) at = {at.x + s.counts[b].x, at.y + s.counts[b].y};
      all = {all.x + s.counts[b].x, all.y + s.counts[b].y};
    }
  }
  const uint32_t lower = (1u << lane) - 1;
  if (mine.x + mine.y != 0)
    share.each(load, [&](int i, uint32_t r) {
      const uint32_t gts = above(r), eqs = equal(r);
      const uint32_t gt_at = at.x + static_cast<uint32_t>(__popc(gts & lower));
      const uint32_t eq_at = at.y + static_cast<uint32_t>(__popc(eqs & lower));
      if ((gts >> lane & 1) != 0 || ((eqs >> lane & 1) != 0 && eq_at < cut.equal))
        out[gt_at + min(eq_at, cut.equal)] = number(i);
      at.x += static_cast<uint32_t>(__popc(gts));
      at.y += static_cast<uint32_t>(__popc(eqs));
    });
  if (blocks > 1) cluster.sync();  // `counts` may be written again; nobody leaves early
  return static_cast<int>(all.x + min(all.y, cut.equal));
}

}  // namespace hadal::cuda
