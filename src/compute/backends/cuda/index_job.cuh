#pragma once

#include "compute/backends/cuda/cache_rows.cuh"

namespace hadal::cuda {

// Neighbours whose largest rank is kept beside the ranks.
inline constexpr int kTopGroup = 8;

// A search launch as plain values. Scores are kept as ranks: unsigned numbers in the order of the
// scores, 0 for -inf and for what is not a number.
struct IndexJob {
  StepView step;
  SourceView source;
  const uint8_t* iq;
  int64_t iq_stride;
  const float* hw;
  int64_t hw_stride;
  int32_t* list;
  int64_t list_stride;
  int32_t* n_list;
  int32_t* pool;
  int64_t pool_stride;
  int32_t* n_pool;
  uint32_t* ranks;  // [rows of the tile][stride]
  int64_t stride;
  uint32_t* tops;  // [rows of the tile][stride / kTopGroup]: the largest ranks of so many, or null
  int32_t first_row;  // of the tile
  int32_t n_heads, d_index, top_k, pool_block, pool_blocks;
  float constant;  // (d_index * n_heads)^-0.5
  bool make_pool, use_pool;
  bool aligned;  // key codes start at multiples of 16 bytes
  bool overlap;  // async_copy.cuh

  __device__ int visible(int row) const { return (step.positions[row] + 1) / source.ratio; }
};

// What a row may choose from: entries numbered 0 ... count - 1 in ascending order.
struct Domain {
  int count;
  int block;
  const int32_t* blocks;  // candidate blocks, or null: entry i is number i

  __device__ Domain(const IndexJob& job, int row) : count(job.visible(row)), block(1) {
    blocks = nullptr;
    if (!job.use_pool || job.n_pool[row] < 0) return;
    const int kept = job.n_pool[row], visible = count;
    blocks = job.pool + row * job.pool_stride;
    block = job.pool_block;
    count = 0;
    if (kept == 0) return;
    const int last = blocks[kept - 1];
    count = (kept - 1) * block + min((last + 1) * block, visible) - last * block;
  }
  __device__ int entry(int i) const {
    return blocks == nullptr ? i : blocks[i / block] * block + i % block;
  }
};

// Every visible entry is chosen and kept, whatever its score.
__device__ __forceinline__ bool trivial(const IndexJob& job, int row, const Domain& domain) {
  const int n = job.visible(row);
  return domain.count <= job.top_k &&
         (!job.make_pool || (n + job.pool_block - 1) / job.pool_block <= job.pool_blocks);
}

__device__ __forceinline__ uint32_t rank_of(float score) {
  uint32_t u = __float_as_uint(score);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u || u == 0xFF800000u) return 0;
  if (u == 0x80000000u) u = 0;  // -0 equals 0
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
inline constexpr uint32_t kRankOfInfinity = 0xFF800000u;

}  // namespace hadal::cuda
