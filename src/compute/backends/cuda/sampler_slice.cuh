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

// A token that may win a draw.
struct ListedToken {
  float scaled;  // logit / T
  uint32_t bits;
  int32_t token;
};

// The draw of a row that is read past, a part for each warp.
struct StreamDraw {
  static constexpr int kWarps = kStreamThreads / 32, kListed = 32;
  uint32_t bound;      // key of bound_of() (sampler_pass.cuh)
  uint32_t n[kWarps];  // of the warp's list, or more if it was too short
  ListedToken listed[kWarps][kListed];
  unsigned long long best[kWarps];  // packed, of what is drawn at once
};
// In the place of a best: a list was too short.
inline constexpr uint64_t kTooMany = ~uint64_t{0};

struct StreamShared {
  SampleShared s;
  StreamDraw draw;
  Told warps[2][kSampleBlocks * kStreamThreads / 32];  // of all blocks
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
// What the lanes of a warp tell together; the mass of each is relative to e^(unit / T), and k is
// log2(e) / T.
__device__ inline Told told_by_warp(const Told& mine, float unit, float k) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  const auto high = static_cast<uint32_t>(mine.best >> 32);
  const uint32_t highest = __reduce_max_sync(kAll, high);
  const uint32_t low =
      __reduce_max_sync(kAll, high == highest ? static_cast<uint32_t>(mine.best) : 0);
  const float top = float_of(__reduce_max_sync(kAll, key_of(mine.top)));
  double mass = mine.mass;
  if (mass != 0 && unit != top) mass *= static_cast<double>(power_of_two((unit - top) * k));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) mass += __shfl_xor_sync(kAll, mass, step);
  return {static_cast<uint64_t>(highest) << 32 | low, top, mass};
}
// The same of all threads of all blocks.
__device__ inline Told tell(SampleBlock& block, StreamShared& m, const Told& mine, float unit,
                            float k) {
  constexpr int kWarps = kStreamThreads / 32;
  const auto lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const Told ours = told_by_warp(mine, unit, k);
  block.turn ^= 1;
  Told* all = m.warps[block.turn];
  if (lane < kSampleBlocks)
    *block.cluster.map_shared_rank(&all[block.rank() * kWarps + warp], lane) = ours;
  block.cluster.sync();
  static_assert(kSampleBlocks * kWarps == 64);
  const Told two = told_of(all[lane], all[lane + 32], k);
  return told_by_warp(two, two.top, k);
}

}  // namespace hadal::cuda
