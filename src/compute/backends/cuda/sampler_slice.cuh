#pragma once

#include "compute/backends/cuda/sampler_draw.cuh"
#include "compute/backends/cuda/sampler_row.cuh"
#include "compute/backends/cuda/sampler_select.cuh"

// A row's slice of the vocabulary as a block reads it past, and what blocks tell each other of it.
namespace hadal::cuda {

inline constexpr int kQuadBatch = 4;     // of four tokens that a thread loads at once
inline constexpr int kStreamTopK = 256;  // the most that a list serves
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLeastNoise = -2.9f;  // -log(-log(2^-25)) = -2.851
inline constexpr float kNothing = -1e30f;

// Key and token in the order of wins(): the largest is best, 0 is none.
__device__ __forceinline__ uint64_t packed(uint32_t key, int32_t token) {
  return static_cast<uint64_t>(key) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(token));
}
__device__ __forceinline__ int32_t token_of(uint64_t best) {
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(best));
}

// What the blocks tell each other of a pass.
struct Told {
  uint64_t best;  // packed
  float top;      // the largest logit, or not a number
  double mass;    // relative to e^(top / T)
};

struct StreamShared {
  SampleShared s;
  Told warps[kStreamThreads / 32];
  Told blocks[2][kSampleBlocks];
  uint32_t tops[kSampleBlocks * kStreamThreads];  // keys of the threads' largest logits
  uint32_t histogram[kStreamThreads];
  uint32_t warp_sums[2][kStreamThreads / 32], warp_least[kStreamThreads / 32];
  uint3 found;
  uint16_t hot[kStreamThreads];
  uint32_t n_hot, n_mine;
  uint32_t listed[kSampleBlocks];  // by each block
};

// Four logits from place `i` of a slice of `n`, for slices that are not read four at a time and
// rows with penalties or a mask.
__device__ __noinline__ float4 four_logits(const SampleTerms* row, const SampleArrays* a,
                                           const float* from, int i, int n, int32_t first) {
  float v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k] = -kInfinity;
    if (i + k >= n) continue;
    v[k] = from[i + k];
    if (!is_plain(*row)) v[k] = adjusted(v[k], first + i + k, *row, *a);
  }
  return {v[0], v[1], v[2], v[3]};
}

// A row's slice as one thread sees it.
struct StreamSlice {
  const SampleArrays* a;
  const SampleTerms* row;
  const float* from;
  int n;
  int32_t first;
  bool quick;  // aligned, no penalties, no mask

  // Of the j-th quad of a batch.
  __device__ __forceinline__ int place(int begin, int j) const {
    return begin + (j * kStreamThreads + static_cast<int>(threadIdx.x)) * 4;
  }
  template <bool kQuick, int kBatch>
  __device__ __forceinline__ void load(int begin, float (&v)[kBatch][4]) const {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = place(begin, j);
      float4 four = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
      if (kQuick && i < n) four = __ldg(reinterpret_cast<const float4*>(from + i));
      if (!kQuick) four = four_logits(row, a, from, i, n, first);
      v[j][0] = four.x, v[j][1] = four.y, v[j][2] = four.z, v[j][3] = four.w;
    }
  }
  // The block's threads share the tokens of those threads whose largest logit is `least` or more:
  // f(four logits, the first's token). Of rows without penalties and mask; barriers inside.
  template <int kBatch, class F>
  __device__ __forceinline__ void each(StreamShared& m, float own, float least, F f) const {
    const auto me = static_cast<int>(threadIdx.x);
    const int quads = (n + kStreamThreads * 4 - 1) / (kStreamThreads * 4);  // of a thread
    const int shift = 32 - __clz(max(quads - 1, 0));
    if (me == 0) m.n_hot = 0;
    __syncthreads();
    if (own >= least) m.hot[atomicAdd(&m.n_hot, 1u)] = static_cast<uint16_t>(me);
    __syncthreads();
    const int all = static_cast<int>(m.n_hot) << shift;
#pragma unroll 1
    for (int begin = me; begin < all; begin += kStreamThreads * kBatch) {
      float4 v[kBatch];
      int at[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int x = begin + b * kStreamThreads;
        v[b] = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
        at[b] = x < all ? ((x & ((1 << shift) - 1)) * kStreamThreads + m.hot[x >> shift]) * 4 : n;
        if (at[b] >= n) continue;
        if (quick) {
          v[b] = __ldg(reinterpret_cast<const float4*>(from + at[b]));
        } else {
          const auto one = [&](int k) { return at[b] + k < n ? from[at[b] + k] : -kInfinity; };
          v[b] = {one(0), one(1), one(2), one(3)};
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        if (at[b] < n) f(v[b], first + at[b]);
    }
  }
};

// The larger, or what is not a number.
__device__ __forceinline__ float largest_of(float a, float b) {
#ifdef __CUDA_ARCH__
  float out;
  asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(out) : "f"(a), "f"(b));
  return out;
#else
  return isnan(a) || a > b ? a : b;
#endif
}
__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDA_ARCH__
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(out) : "f"(x));
  return out;
#else
  return exp2f(x);
#endif
}

__device__ __forceinline__ Told told_of(const Told& a, const Told& b, float k) {
  const float top = largest_of(a.top, b.top);
  const auto mass = [&](const Told& t) {
    return t.top == top ? t.mass : t.mass * static_cast<double>(power_of_two((t.top - top) * k));
  };
  return {a.best > b.best ? a.best : b.best, top, mass(a) + mass(b)};
}

// `mine` of all threads of all blocks; its mass is relative to the thread's `unit`, a scaled logit.
// k is log2(e) / T.
__device__ inline Told tell(SampleBlock& block, StreamShared& m, uint64_t best, float top,
                            float mass, float unit, float inverse_t) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  const float k = kLog2E * inverse_t;
  Told mine;
  const auto high = static_cast<uint32_t>(best >> 32);
  const uint32_t highest = __reduce_max_sync(kAll, high);
  const uint32_t low = __reduce_max_sync(kAll, high == highest ? static_cast<uint32_t>(best) : 0);
  mine.best = static_cast<uint64_t>(highest) << 32 | low;
  mine.top = float_of(__reduce_max_sync(kAll, key_of(top)));
  const bool weighs = mass != 0 && mine.top > -kInfinity;
  double sum =
      weighs ? static_cast<double>(mass * power_of_two((unit - mine.top * inverse_t) * kLog2E)) : 0;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  mine.mass = sum;
  if (threadIdx.x % 32 == 0) m.warps[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = m.warps[0];
#pragma unroll 1
  for (int w = 1; w < kStreamThreads / 32; ++w) mine = told_of(mine, m.warps[w], k);
  const Told* all = block.exchange(m.blocks, mine);
  mine = all[0];
#pragma unroll 1
  for (int b = 1; b < kSampleBlocks; ++b) mine = told_of(mine, all[b], k);
  return mine;
}

}  // namespace hadal::cuda
