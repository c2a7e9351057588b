#include <algorithm>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/index_fast.h"
#include "compute/backends/cuda/index_joint.cuh"

// The kernel that scores the keys of released sizes.
namespace hadal::cuda {
namespace {

constexpr int kWarps = 4;

// 32 keys from `first` whatever their scales. `query` is the warp's own, and made by its first turn
// of this kind.
__device__ __noinline__ void score_turn(const IndexJob& job, int row, int first, Query& query,
                                        bool has_query, uint32_t* ranks, uint32_t* tops) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Domain domain(job, row);
  const Scorer scorer{job, job.step.tables + job.step.seq(row).table_offset, lane};
  if (!has_query) {
#pragma unroll 1
    for (int n = 0; n < kHeads / 8; ++n) scorer.prepare(row, n, query);
    __syncwarp();
  }
  for (const int end = first + kTurn; first < end && first < domain.count; first += 16) {
    float score[2];
    scorer.score(scorer.load_keys(domain, first), query, score);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int group = first + kTopGroup * e, i = group + lane / 4;
      const bool has = lane % 4 == 3 && i < domain.count;
      const uint32_t rank = has ? rank_of(score[e]) : 0;
      if (has) ranks[i] = rank;
      const uint32_t top = __reduce_max_sync(0xFFFFFFFFu, rank);
      if (lane == 0 && group < domain.count) tops[group / kTopGroup] = top;
    }
  }
}

// Warps of a block share a row's keys (kShared), or take a row each of as many.
template <bool kShared>
__global__ void __launch_bounds__(kWarps * 32, 4)
    score_mma_kernel(const __grid_constant__ IndexJob job, int n_rows) {
  __shared__ Query queries[kWarps];  // made by warps that need them
  // First the query on its way to the lanes, then the terms of a warp's turn.
  __shared__ __align__(16) union {
    JointStage stage;
    float terms[kTurn][kTermStride];
  } own[kWarps];
  __shared__ int fitting[kWarps];
  follow_previous(job.overlap);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int of_tile =
      kShared ? static_cast<int>(blockIdx.y) : static_cast<int>(blockIdx.y) * kWarps + warp;
  if (of_tile >= n_rows) return;
  const int row = job.first_row + of_tile;
  const Domain domain(job, row);
  const int warps = kShared ? kWarps : 1;
  const int base = static_cast<int>(blockIdx.x) * warps * kTurn;
  if (base >= domain.count || trivial(job, row, domain)) return;
  int first = base + (kShared ? warp : 0) * kTurn;
  const int step = static_cast<int>(gridDim.x) * warps * kTurn;
  const uint32_t* table = job.step.tables + job.step.seq(row).table_offset;
  TurnKeys keys = load_turn(job, domain, table, first, lane);
  JointStage& stage = own[kShared ? 0 : warp].stage;
  bool row_fits = true;
  if constexpr (kShared) {
    static_assert(kHeads / 8 == kWarps);
    fitting[warp] = prepare_joint(job, row, warp, lane, stage) ? 1 : 0;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) row_fits = row_fits && fitting[w] != 0;
  } else {
#pragma unroll 1
    for (int n = 0; n < kHeads / 8; ++n)
      row_fits = prepare_joint(job, row, n, lane, stage) && row_fits;
    __syncwarp();
  }
  JointQuery joint;
#pragma unroll
  for (int n = 0; n < kHeads / 8; ++n) {
    joint.offset_weight[n] = stage.offset_weight[n][lane % 4];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) joint.b[n][g] = stage.b[n][g][lane];
  }
  if constexpr (kShared)
    __syncthreads();
  else
    __syncwarp();
  uint32_t* ranks = job.ranks + of_tile * job.stride;
  uint32_t* tops = job.tops + of_tile * (job.stride / kTopGroup);
  bool has_query = false;
  for (; first < domain.count; first += step) {
    const TurnKeys now = keys;
    keys = load_turn(job, domain, table, first + step, lane);
    bool fits = false;
    float score = 0;
    const int left = domain.count - first;
    if (row_fits) score = joint_score(now, left, lane, joint, job.constant, own[warp].terms, fits);
    if (!fits) {
      score_turn(job, row, first, queries[warp], has_query, ranks, tops);
      has_query = true;
      continue;
    }
    const uint32_t rank = lane < left ? rank_of(score) : 0;
    if (lane < left) ranks[first + lane] = rank;
    uint32_t top = rank;
#pragma unroll
    for (int other = 1; other < kTopGroup; other *= 2)
      top = max(top, __shfl_xor_sync(0xFFFFFFFFu, top, other));
    if (lane % kTopGroup == 0 && lane < left) tops[(first + lane) / kTopGroup] = top;
  }
}

}  // namespace

bool index_mma_takes(const IndexJob& job) {
  return job.n_heads == kHeads && job.d_index == 32 * kGroups && job.source.shift >= 0 &&
         job.source.n_entries % kTurn == 0 && (!job.use_pool || job.pool_block % 8 == 0) &&
         job.source.key_offset % 4 == 0 && job.source.key_scale_offset % 4 == 0 &&
         job.source.slab_bytes % 4 == 0 && job.iq_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(job.source.slabs) % 4 == 0 &&
         reinterpret_cast<uintptr_t>(job.iq) % 4 == 0;
}

void launch_score_mma(const IndexJob& job, int rows, const Gpu& gpu, cudaStream_t stream) {
  const bool shared = rows <= 2 * gpu.sm_count;
  const int in_y = shared ? rows : (rows + kWarps - 1) / kWarps;
  const int64_t keys = static_cast<int64_t>(shared ? kWarps : 1) * kTurn;
  const int64_t most = (job.stride + keys - 1) / keys;
  const int64_t wanted = std::max<int64_t>(1, 4 * gpu.sm_count / in_y);  // four blocks fit
  const dim3 grid(static_cast<unsigned>(std::min(most, wanted)), static_cast<unsigned>(in_y));
  launch_following(job.overlap, 1, shared ? score_mma_kernel<true> : score_mma_kernel<false>, grid,
                   dim3(kWarps * 32), 0, stream, job, rows);
}

}  // namespace hadal::cuda
