#pragma once

#include <climits>
#include <cstdint>

#include <cooperative_groups.h>

#include "compute/ops/sampler.h"

// What the blocks of a row's cluster share: each holds a slice of the vocabulary in shared memory,
// and they exchange small values.
namespace hadal::cuda {

inline constexpr int kSampleThreads = 512;  // of rows whose slices lie in shared memory
inline constexpr int kStreamThreads = 256;  // of rows that are read past
inline constexpr int kListed = 512;         // tokens that a block looks at one by one
inline constexpr int kSampleBlocks = 8;     // of a row: the largest portable cluster
inline constexpr int kSampleBins = 1024;
inline constexpr int kQuadsAhead = 7;  // of four tokens that a thread has on their way
inline constexpr uint32_t kLowestKey = 0x00800000u;  // of the lowest finite number

// Order of floats as unsigned numbers; both zeros are equal, -inf is below kLowestKey.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t u = __float_as_uint(x + 0.0f);
  return (u >> 31) != 0 ? ~u : u | 0x80000000u;
}

// Best first: the larger value, among equals the lower token. INT_MAX is no token.
struct Contender {
  float value;
  int32_t token;
  float logit;
};
__device__ __forceinline__ bool wins(const Contender& a, const Contender& b) {
  return a.value != b.value ? a.value > b.value : a.token < b.token;
}

// Kept: keys above `key`, and of those that equal it the ones up to `token`.
struct Cut {
  uint32_t key = kLowestKey;
  int32_t token = INT_MAX;
  __device__ __forceinline__ bool keeps(float logit, int32_t id) const {
    const uint32_t k = key_of(logit);
    return k > key || (k == key && id <= token);
  }
};

// The tokens that may win a draw: those whose estimated value reaches the bound.
struct DrawList {
  static constexpr int kSize = 256;
  Contender entries[kSize];  // value: scaled logit
  uint32_t bits[kSize];
  uint32_t n;
  uint32_t bound;  // key of the highest value that is surely reached
};

// What the blocks of a row tell one another. An array is written again only after a barrier of the
// cluster that follows its reading.
struct Exchange {
  Contender contenders[2][kSampleBlocks];
  double sums[2][kSampleBlocks];
  uint32_t words[2][kSampleBlocks];
  Contender warp_contenders[kSampleThreads / 32];
  double warp_sums[kSampleThreads / 32];
  uint32_t warp_words[kSampleThreads / 32];
};

// Tokens by their distance from the likeliest; in block 0 those of one bin in their order.
struct SampleBins {
  uint32_t counts[kSampleBins];
  uint32_t mass_low[kSampleBins], mass_high[kSampleBins];
  Contender ordered[kListed];
  double weights[kListed];
};

// Shared memory of one block besides its slice.
struct SampleShared {
  Exchange exchange;
  DrawList draw;
  uint64_t warp_mass[kSampleThreads / 32];
  union {  // one after the other
    SampleBins bins;
    float4 ring[kQuadsAhead][kStreamThreads];       // of a walk over a row (sampler_walk.cuh)
    uint32_t tops[kSampleBlocks * kStreamThreads];  // keys of the threads' largest logits
  };
  // the bin that holds the boundary, and what comes before it
  int bin;
  uint64_t before;
  double mass_before, wanted, total;
  uint32_t inside;
  int32_t found;
  // in block 0: the tokens of that bin, or the listed log-probabilities
  uint32_t n_listed;
  Contender listed[kListed];
  Contender cut;
};

// One block's view of its row.
struct SampleBlock {
  cooperative_groups::cluster_group cluster;
  Exchange& shared;
  const float* values;  // [n] in shared memory
  int n;
  int32_t first;  // token of values[0]
  int turn = 0;

  __device__ static int n_warps() { return static_cast<int>(blockDim.x) / 32; }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ int rank() const { return static_cast<int>(cluster.block_rank()); }

  // Gives a block's `mine`, which its threads agree on, to all blocks. `slots` are two arrays of
  // one per block.
  template <class T>
  __device__ const T* exchange(T (&slots)[2][kSampleBlocks], const T& mine) {
    turn ^= 1;
    if (threadIdx.x < kSampleBlocks)
      *cluster.map_shared_rank(&slots[turn][rank()], static_cast<int>(threadIdx.x)) = mine;
    cluster.sync();
    return slots[turn];
  }

  // The best of all threads of all blocks.
  __device__ Contender best_of(Contender mine) {
    const auto better = [](Contender a, Contender b) { return wins(b, a) ? b : a; };
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const Contender other = {__shfl_xor_sync(0xFFFFFFFFu, mine.value, step),
                               __shfl_xor_sync(0xFFFFFFFFu, mine.token, step),
                               __shfl_xor_sync(0xFFFFFFFFu, mine.logit, step)};
      mine = better(mine, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared.warp_contenders[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = shared.warp_contenders[0];
    for (int w = 1; w < n_warps(); ++w) mine = better(mine, shared.warp_contenders[w]);
    const Contender* all = exchange(shared.contenders, mine);
    mine = all[0];
    for (int b = 1; b < kSampleBlocks; ++b) mine = better(mine, all[b]);
    return mine;
  }

  // The sum over all threads of all blocks, in an order that is fixed.
  __device__ double sum_of(double mine) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared.warp_sums[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = 0;
    for (int w = 0; w < n_warps(); ++w) mine += shared.warp_sums[w];
    const double* all = exchange(shared.sums, mine);
    mine = 0;
    for (int b = 0; b < kSampleBlocks; ++b) mine += all[b];
    return mine;
  }
};

}  // namespace hadal::cuda
