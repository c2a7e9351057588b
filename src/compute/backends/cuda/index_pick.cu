#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/index_cut.cuh"
#include "compute/backends/cuda/index_fast.h"

// Lists and pools by one block a row that looks at every eighth of the numbers: the tops, each the
// largest rank of eight neighbours.
//
// A rank that 512 of the block's threads have in their tops is a lower bound of the 512th largest;
// among 65,536 random ranks some 710 reach it. They lie in the groups whose tops reach it, which
// are read, and the bound is then made exact among them.
namespace hadal::cuda {
namespace {

// A warp's 32 `per` tops in sequence, of which a lane has every 32nd.
template <int kPer>
struct Tops {
  uint32_t v[kPer];
  int first, per;
  __device__ Tops(const uint32_t* tops, int n) {
    per = (n + kPickThreads - 1) / kPickThreads;
    first = static_cast<int>(threadIdx.x) / 32 * 32 * per + static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int number = first + 32 * j;
      v[j] = j < per && number < n ? tops[number] : 0;
    }
  }
  __device__ uint32_t largest() const {
    uint32_t out = v[0];
#pragma unroll
    for (int j = 1; j < kPer; ++j) out = max(out, v[j]);
    return out;
  }
  __device__ uint32_t least() const {  // of those that are not 0
    uint32_t out = kAll;
#pragma unroll
    for (int j = 0; j < kPer; ++j) out = v[j] != 0 ? min(out, v[j]) : out;
    return out;
  }
  __device__ uint32_t reaching(uint32_t bound) const {
    uint32_t n = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) n += v[j] >= bound ? 1u : 0u;
    return n;
  }
  template <class F>
  __device__ __forceinline__ void each(F f) const {
#pragma unroll
    for (int j = 0; j < kPer; ++j) f(v[j]);
  }
};

__device__ __forceinline__ uint32_t lower_lanes(int lane) {
  return (1u << lane) - 1;
}

// The blocks of eight to keep.
template <int kPer>
__device__ void pick_pool(const IndexJob& job, int row, const uint32_t* tops, int n,
                          PickShared& s) {
  if (n <= job.pool_blocks) {
    if (threadIdx.x == 0) job.n_pool[row] = -1;
    return;
  }
  Sums sums(s);
  Tops<kPer> held(tops, n);
#pragma unroll
  for (int j = 0; j < kPer; ++j)  // the newest stays
    if (held.first + 32 * j == n - 1 && j < held.per && held.v[j] != 0) held.v[j] = kRankOfInfinity;
  const auto wanted = static_cast<uint32_t>(job.pool_blocks);
  const uint2 range = sums.range(held.largest(), held.least());
  const RankCut cut = cut_of(wanted, range.y, range.x, 0, sums, [&](auto f) { held.each(f); });
  // How many are chosen, in the low half, or equal to the cut, in the high half.
  const auto above = [&](uint32_t r) { return __ballot_sync(kAll, r > cut.rank); };
  const auto equal = [&](uint32_t r) {
    return __ballot_sync(kAll, r == cut.rank && r != 0 && cut.equal != 0);
  };
  uint32_t mine = 0, all;
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    mine += static_cast<uint32_t>(__popc(above(held.v[j])) + (__popc(equal(held.v[j])) << 16));
  const uint32_t before = sums.before_warp(mine, all);
  uint32_t at = before & 0xFFFFu, equals = before >> 16;
  int32_t* pool = job.pool + row * job.pool_stride;
  const uint32_t lower = lower_lanes(sums.lane);
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const uint32_t gts = above(held.v[j]), eqs = equal(held.v[j]);
    const uint32_t gt_at = at + static_cast<uint32_t>(__popc(gts & lower));
    const uint32_t eq_at = equals + static_cast<uint32_t>(__popc(eqs & lower));
    if ((gts >> sums.lane & 1) != 0 || ((eqs >> sums.lane & 1) != 0 && eq_at < cut.equal))
      pool[gt_at + min(eq_at, cut.equal)] = held.first + 32 * j;
    at += static_cast<uint32_t>(__popc(gts));
    equals += static_cast<uint32_t>(__popc(eqs));
  }
  if (threadIdx.x == 0)
    job.n_pool[row] = static_cast<int32_t>((all & 0xFFFFu) + min(all >> 16, cut.equal));
}

// Writes the chosen of `n` ranks a thread has, in the order of threads; returns how many.
template <int kEach, class Number>
__device__ int write_chosen(const uint32_t (&ranks)[kEach], const RankCut& cut, Number number,
                            int32_t* list, Sums& sums) {
  uint32_t mine = 0, all;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const bool equal = ranks[e] == cut.rank && ranks[e] != 0 && cut.equal != 0;
    mine += (ranks[e] > cut.rank ? 1u : 0u) + (equal ? 1u << 16 : 0u);
  }
  const uint32_t before = sums.before_thread(mine, all);
  uint32_t at = before & 0xFFFFu, equals = before >> 16;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const bool equal = ranks[e] == cut.rank && ranks[e] != 0 && cut.equal != 0;
    if (ranks[e] > cut.rank || (equal && equals < cut.equal))
      list[at + min(equals, cut.equal)] = number(e);
    at += ranks[e] > cut.rank ? 1u : 0u;
    equals += equal ? 1u : 0u;
  }
  return static_cast<int>((all & 0xFFFFu) + min(all >> 16, cut.equal));
}

// The list of a row; -1 if too many groups reach the bound: ranks that are equal.
template <int kPer>
__device__ int pick_list(const IndexJob& job, const Domain& domain, const uint32_t* ranks,
                         const uint32_t* tops, int32_t* list, PickShared& s) {
  const int n_tops = (domain.count + kTopGroup - 1) / kTopGroup;
  const auto wanted = static_cast<uint32_t>(min(job.top_k, domain.count));
  Sums sums(s);
  const Tops<kPer> held(tops, n_tops);
  const uint32_t own = held.largest();
  const uint2 range = sums.range(own, own != 0 ? own : kAll);
  const uint32_t high = range.x;
  if (high == 0) return 0;
  uint32_t low =
      lowest(cut_of(wanted, range.y, high, wanted + wanted / 8, sums, [&](auto f) { f(own); }));
  // Those groups, in order.
  uint32_t n_groups;
  uint32_t at = sums.before_warp(__reduce_add_sync(kAll, held.reaching(low)), n_groups);
  if (n_groups > kPickThreads) {
    low = lowest(cut_of(wanted, low, high, 0, sums, [&](auto f) { held.each(f); }));
    at = sums.before_warp(__reduce_add_sync(kAll, held.reaching(low)), n_groups);
    if (n_groups > kPickThreads) return -1;
  }
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const uint32_t votes = __ballot_sync(kAll, held.v[j] >= low);
    if (votes == 0) continue;
    if (held.v[j] >= low)
      s.groups[at + static_cast<uint32_t>(__popc(votes & lower_lanes(sums.lane)))] =
          held.first + 32 * j;
    at += static_cast<uint32_t>(__popc(votes));
  }
  __syncthreads();
  // A thread's group: its ranks that reach the bound, others 0.
  uint32_t r[kTopGroup] = {};
  const auto me = static_cast<uint32_t>(threadIdx.x);
  if (me < n_groups) {
    const int first = s.groups[me] * kTopGroup;
    const auto* from = reinterpret_cast<const uint4*>(ranks + first);
    const uint4 x = from[0], y = from[1];
    const uint32_t raw[kTopGroup] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
    for (int e = 0; e < kTopGroup; ++e)
      r[e] = first + e < domain.count && raw[e] >= low ? raw[e] : 0;
  }
  uint32_t reach = 0, n;
#pragma unroll
  for (int e = 0; e < kTopGroup; ++e) reach += r[e] != 0 ? 1u : 0u;
  uint32_t to = sums.before_thread(reach, n);
  if (n > kPickThreads) {
    const RankCut cut = cut_of(wanted, low, high, 0, sums, [&](auto f) {
#pragma unroll
      for (int e = 0; e < kTopGroup; ++e) f(r[e]);
    });
    return write_chosen(
        r, cut, [&](int e) { return domain.entry(s.groups[me] * kTopGroup + e); }, list, sums);
  }
#pragma unroll
  for (int e = 0; e < kTopGroup; ++e) {
    if (r[e] == 0) continue;
    s.ranks[to] = r[e];
    s.places[to++] = static_cast<uint16_t>(me * kTopGroup + static_cast<uint32_t>(e));
  }
  __syncthreads();
  const uint32_t one[1] = {me < n ? s.ranks[me] : 0};
  RankCut cut{0, 0};
  if (n > wanted) cut = cut_of(wanted, low, high, 0, sums, [&](auto f) { f(one[0]); });
  return write_chosen(
      one, cut,
      [&](int) {
        const int place = s.places[me];
        return domain.entry(s.groups[place / kTopGroup] * kTopGroup + place % kTopGroup);
      },
      list, sums);
}

// blockIdx.y 0 makes the list, 1 the pool.
template <int kPer>
__global__ void __launch_bounds__(kPickThreads) pick_kernel(const __grid_constant__ IndexJob job) {
  __shared__ union {
    PickShared pick;
    SelectShared select;
  } s;
  follow_previous(job.overlap);
  const auto of_tile = static_cast<int>(blockIdx.x);
  const int row = job.first_row + of_tile;
  const Domain domain(job, row);
  int32_t* list = job.list + row * job.list_stride;
  const bool tells = threadIdx.x == 0;
  if (trivial(job, row, domain)) {
    if (blockIdx.y != 0) return;
    for (int i = static_cast<int>(threadIdx.x); i < domain.count; i += kPickThreads)
      list[i] = domain.entry(i);
    if (tells) job.n_list[row] = domain.count;
    if (tells && job.make_pool) job.n_pool[row] = -1;
    return;
  }
  const uint32_t* tops = job.tops + of_tile * (job.stride / kTopGroup);
  if (blockIdx.y != 0) {
    pick_pool<kPer>(job, row, tops, (domain.count + kTopGroup - 1) / kTopGroup, s.pick);
    return;
  }
  const uint32_t* ranks = job.ranks + of_tile * job.stride;
  int chosen = pick_list<kPer>(job, domain, ranks, tops, list, s.pick);
  if (chosen < 0) {
    __syncthreads();
    chosen = choose(
        domain.count, job.top_k, [&](int i) { return ranks[i]; },
        [&](int i) { return domain.entry(i); }, list, s.select);
  }
  if (tells) job.n_list[row] = chosen;
}

// The most tops that a row of the job may have.
int64_t most_tops(const IndexJob& job) {
  const int64_t pooled = static_cast<int64_t>(job.pool_blocks) * job.pool_block / kTopGroup;
  const int64_t all = job.stride / kTopGroup;
  return job.use_pool && pooled < all ? pooled : all;
}

}  // namespace

bool index_pick_takes(const IndexJob& job) {
  return job.top_k <= kPickThreads && (!job.make_pool || job.pool_block == kTopGroup) &&
         (!job.use_pool || job.pool_block % kTopGroup == 0) && most_tops(job) <= 16 * kPickThreads;
}

void launch_pick(const IndexJob& job, int rows, cudaStream_t stream) {
  const int64_t most = most_tops(job);
  const auto kernel = most <= 2 * kPickThreads   ? pick_kernel<2>
                      : most <= 8 * kPickThreads ? pick_kernel<8>
                                                 : pick_kernel<16>;
  launch_following(job.overlap, 1, kernel,
                   dim3(static_cast<unsigned>(rows), job.make_pool ? 2u : 1u), dim3(kPickThreads),
                   0, stream, job);
}

}  // namespace hadal::cuda
