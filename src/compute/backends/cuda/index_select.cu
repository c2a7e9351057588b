#include <algorithm>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/index_choose.cuh"
#include "compute/backends/cuda/index_fast.h"

// Lists and pools of any shape from the ranks of all entries.
namespace hadal::cuda {
namespace {

__global__ void __launch_bounds__(kSelectThreads)
    select_kernel(const __grid_constant__ IndexJob job) {
  __shared__ SelectShared s;
  follow_previous(job.overlap);
  cg::cluster_group cluster = cg::this_cluster();
  const auto blocks = static_cast<int>(cluster.num_blocks());
  const auto block = static_cast<int>(cluster.block_rank());
  const int of_tile = static_cast<int>(blockIdx.x) / blocks, row = job.first_row + of_tile;
  const bool tells = block == 0 && threadIdx.x == 0;
  const Domain domain(job, row);
  int32_t* list = job.list + row * job.list_stride;
  if (trivial(job, row, domain)) {
    for (int i = block * kSelectThreads + static_cast<int>(threadIdx.x); i < domain.count;
         i += blocks * kSelectThreads)
      list[i] = domain.entry(i);
    if (tells) job.n_list[row] = domain.count;
    if (tells && job.make_pool) job.n_pool[row] = -1;
    return;
  }
  const uint32_t* ranks = job.ranks + of_tile * job.stride;
  const int chosen = choose(
      domain.count, job.top_k, [&](int i) { return ranks[i]; },
      [&](int i) { return domain.entry(i); }, list, s);
  if (tells) job.n_list[row] = chosen;
  if (!job.make_pool) return;
  const int n = domain.count, size = job.pool_block, pool_blocks = (n + size - 1) / size;
  if (pool_blocks <= job.pool_blocks) {
    if (tells) job.n_pool[row] = -1;
    return;
  }
  const int kept = choose(
      pool_blocks, job.pool_blocks,
      [&](int b) {
        uint32_t top = 0;
        if (size == 8 && (b + 1) * 8 <= n) {
          const auto* eight = reinterpret_cast<const uint4*>(ranks + b * 8);
          const uint4 x = eight[0], y = eight[1];
          top = max(max(max(x.x, x.y), max(x.z, x.w)), max(max(y.x, y.y), max(y.z, y.w)));
        } else {
          for (int i = b * size; i < min(n, (b + 1) * size); ++i) top = max(top, ranks[i]);
        }
        return b == pool_blocks - 1 && top > 0 ? kRankOfInfinity : top;  // the newest stays
      },
      [](int b) { return b; }, job.pool + row * job.pool_stride, s);
  if (tells) job.n_pool[row] = kept;
}

}  // namespace

void launch_select(const IndexJob& job, int rows, cudaStream_t stream) {
  int blocks = 1;
  while (blocks < kSelectBlocks && static_cast<int64_t>(blocks) * kSelectThreads * 8 < job.stride)
    blocks *= 2;
  launch_following(job.overlap, static_cast<unsigned>(blocks), select_kernel,
                   dim3(static_cast<unsigned>(rows * blocks)), dim3(kSelectThreads), 0, stream,
                   job);
}

}  // namespace hadal::cuda
