#include <algorithm>

#include <cooperative_groups.h>

#include "compute/backends/cuda/index_fast.h"

// The largest ranks of a row, ascending by number, by a cluster of blocks: a radix descent of 11,
// 11 and 10 bits over histograms in shared memory that the blocks add up, then one ordered pass
// that writes. Counts are integers and numbers are placed by their order, so nothing depends on
// timing.
namespace hadal::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 1024;
constexpr int kMostBlocks = 8;
constexpr int kItems = 16;  // of a thread, when they are kept in registers
constexpr int kBins = 2048;

struct Shared {
  uint32_t histogram[kBins];
  uint32_t total[kBins];
  uint32_t warp_total[32];
  uint32_t found[2];
  uint2 warp_counts[kThreads / 32];
  uint2 counts[kMostBlocks];
};

// A warp has 32 `per` numbers of a row's in sequence, `j` of a lane being first + 32 j; the
// cluster's warps follow each other.
struct Share {
  int first, per, count;
  __device__ Share(int n, int blocks, int block) : count(n) {
    const int warps = blocks * kThreads / 32;
    per = (n + warps * 32 - 1) / (warps * 32);
    const int warp = (block * kThreads + static_cast<int>(threadIdx.x)) / 32;
    first = warp * 32 * per + static_cast<int>(threadIdx.x) % 32;
  }
  __device__ int number(int j) const { return first + 32 * j; }
};

// The ranks of a share: in registers if kKept, else read again at each pass. What is past the end
// has rank 0.
template <bool kKept, class Load>
struct Ranks {
  Share share;
  Load load;
  uint32_t kept[kKept ? kItems : 1];

  __device__ Ranks(const Share& s, Load l) : share(s), load(l) {
    if constexpr (kKept) {
#pragma unroll
      for (int j = 0; j < kItems; ++j) kept[j] = j < share.per ? at(j) : 0;
    }
  }
  __device__ __forceinline__ uint32_t at(int j) const {
    return share.number(j) < share.count ? load(share.number(j)) : 0;
  }
  // Calls f(j, rank) in order; all lanes of the warp take part in each call.
  template <class F>
  __device__ __forceinline__ void each(F f) const {
    if constexpr (kKept) {
#pragma unroll
      for (int j = 0; j < kItems; ++j)
        if (j < share.per) f(j, kept[j]);
    } else {
      for (int j = 0; j < share.per; ++j) f(j, at(j));
    }
  }
};

// Inclusive sums over the block's threads in order.
__device__ uint32_t block_scan(uint32_t x, uint32_t* warp_total) {
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

struct Cut {
  uint32_t rank;   // the smallest that is chosen
  uint32_t equal;  // how many that are equal to it
};

template <class R>
__device__ Cut find_cut(const R& ranks, uint32_t wanted, Shared& s) {
  cg::cluster_group cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const auto block = static_cast<int>(cluster.block_rank());
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t prefix = 0, mask = 0;
  constexpr int kShifts[] = {21, 10, 0}, kWidths[] = {2048, 2048, 1024};
  for (int pass = 0; pass < 3; ++pass) {
    const int shift = kShifts[pass], bins = kWidths[pass];
    for (int i = thread; i < bins; i += kThreads) s.histogram[i] = 0;
    __syncthreads();
    ranks.each([&](int j, uint32_t r) {
      if (ranks.share.number(j) < ranks.share.count && (r & mask) == prefix)
        atomicAdd(&s.histogram[r >> shift & static_cast<uint32_t>(bins - 1)], 1u);
    });
    cluster.sync();
    // Each block adds up a part of the bins and tells all.
    const int part = bins / blocks;
    for (int i = thread; i < part; i += kThreads) {
      const int bin = block * part + i;
      uint32_t sum = 0;
      for (int b = 0; b < blocks; ++b) sum += cluster.map_shared_rank(s.histogram, b)[bin];
      for (int b = 0; b < blocks; ++b) cluster.map_shared_rank(s.total, b)[bin] = sum;
    }
    cluster.sync();
    // From the highest bin down: where `wanted` is reached.
    const int per = bins / kThreads, top = bins - 1 - thread * per;
    uint32_t mine = 0;
    for (int i = 0; i < per; ++i) mine += s.total[top - i];
    uint32_t before = block_scan(mine, s.warp_total) - mine;
    if (before < wanted && before + mine >= wanted) {
      int bin = top;
      while (before + s.total[bin] < wanted) before += s.total[bin--];
      s.found[0] = static_cast<uint32_t>(bin);
      s.found[1] = wanted - before;
    }
    __syncthreads();
    prefix |= s.found[0] << shift;
    mask |= static_cast<uint32_t>(bins - 1) << shift;
    wanted = s.found[1];
  }
  return {prefix, wanted};
}

// Writes the numbers of the `k` largest ranks of `count` (all the cluster's threads take part);
// returns how many. Equal ranks: the lower number wins; rank 0 is never chosen.
template <bool kKept, class Load, class Number>
__device__ int choose(int count, int k, Load load, Number number, int32_t* out, Shared& s) {
  cg::cluster_group cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const auto block = static_cast<int>(cluster.block_rank());
  const Ranks<kKept, Load> ranks(Share(count, blocks, block), load);
  const Cut cut = find_cut(ranks, static_cast<uint32_t>(min(count, k)), s);
  const auto above = [&](uint32_t r) { return __ballot_sync(0xFFFFFFFFu, r > cut.rank); };
  const auto equal = [&](uint32_t r) {
    return __ballot_sync(0xFFFFFFFFu, r == cut.rank && r != 0);
  };
  uint2 mine = {0, 0};  // the warp's: above the cut, equal to it
  ranks.each([&](int, uint32_t r) {
    mine.x += static_cast<uint32_t>(__popc(above(r)));
    mine.y += static_cast<uint32_t>(__popc(equal(r)));
  });
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if (lane == 0) s.warp_counts[warp] = mine;
  __syncthreads();
  uint2 at = {0, 0}, all = {0, 0};  // chosen candidates before this warp; of the block
  for (int w = 0; w < kThreads / 32; ++w) {
    const uint2 c = s.warp_counts[w];
    if (w < warp) at = {at.x + c.x, at.y + c.y};
    all = {all.x + c.x, all.y + c.y};
  }
  if (threadIdx.x < static_cast<unsigned>(blocks))
    cluster.map_shared_rank(s.counts, threadIdx.x)[block] = all;
  cluster.sync();
  all = {0, 0};
  for (int b = 0; b < blocks; ++b) {
    if (b < block) at = {at.x + s.counts[b].x, at.y + s.counts[b].y};
    all = {all.x + s.counts[b].x, all.y + s.counts[b].y};
  }
  const uint32_t lower = (1u << lane) - 1;
  ranks.each([&](int j, uint32_t r) {
    const uint32_t gts = above(r), eqs = equal(r);
    const uint32_t gt_at = at.x + static_cast<uint32_t>(__popc(gts & lower));
    const uint32_t eq_at = at.y + static_cast<uint32_t>(__popc(eqs & lower));
    if ((gts >> lane & 1) != 0 || ((eqs >> lane & 1) != 0 && eq_at < cut.equal))
      out[gt_at + min(eq_at, cut.equal)] = number(ranks.share.number(j));
    at.x += static_cast<uint32_t>(__popc(gts));
    at.y += static_cast<uint32_t>(__popc(eqs));
  });
  cluster.sync();  // `counts` may be written again
  return static_cast<int>(all.x + min(all.y, cut.equal));
}

template <bool kKept>
__global__ void __launch_bounds__(kThreads) select_kernel(const __grid_constant__ IndexJob job) {
  __shared__ Shared s;
  cg::cluster_group cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const auto block = static_cast<int>(cluster.block_rank());
  const int of_tile = static_cast<int>(blockIdx.x) / blocks, row = job.first_row + of_tile;
  const bool tells = block == 0 && threadIdx.x == 0;
  const Domain domain(job, row);
  int32_t* list = job.list + row * job.list_stride;
  if (trivial(job, row, domain)) {
    for (int i = block * kThreads + static_cast<int>(threadIdx.x); i < domain.count;
         i += blocks * kThreads)
      list[i] = domain.entry(i);
    if (tells) job.n_list[row] = domain.count;
    if (tells && job.make_pool) job.n_pool[row] = -1;
    return;
  }
  const uint32_t* ranks = job.ranks + of_tile * job.stride;
  const int chosen = choose<kKept>(
      domain.count, job.top_k, [&](int i) { return ranks[i]; },
      [&](int i) { return domain.entry(i); }, list, s);
  if (tells) job.n_list[row] = chosen;
  if (!job.make_pool) return;
  const int n = domain.count, size = job.pool_block, pool_blocks = (n + size - 1) / size;
  if (pool_blocks <= job.pool_blocks) {
    if (tells) job.n_pool[row] = -1;
    return;
  }
  const int kept = choose<kKept>(
      pool_blocks, job.pool_blocks,
      [&](int b) {
        uint32_t top = 0;
        for (int i = b * size; i < min(n, (b + 1) * size); ++i) top = max(top, ranks[i]);
        return b == pool_blocks - 1 && top > 0 ? kRankOfInfinity : top;  // the newest stays
      },
      [](int b) { return b; }, job.pool + row * job.pool_stride, s);
  if (tells) job.n_pool[row] = kept;
}

template <bool kKept>
void launch(const IndexJob& job, int rows, int blocks, cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows * blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, select_kernel<kKept>, job);
}

}  // namespace

void launch_select(const IndexJob& job, int rows, cudaStream_t stream) {
  int blocks = 1;
  while (blocks < kMostBlocks && static_cast<int64_t>(blocks) * kThreads * 8 < job.stride)
    blocks *= 2;
  if (job.stride <= static_cast<int64_t>(blocks) * kThreads * kItems)
    launch<true>(job, rows, blocks, stream);
  else
    launch<false>(job, rows, blocks, stream);
}

}  // namespace hadal::cuda
