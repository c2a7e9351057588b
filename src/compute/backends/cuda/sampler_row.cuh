#pragma once

#include "compute/backends/cuda/sampler_block.cuh"
#include "compute/backends/cuda/sampler_kernel.h"

// What a row's terms make of a logit, and of the likeliest token.
namespace hadal::cuda {

inline constexpr float kInfinity = __builtin_huge_valf();

// Penalties and mask.
__device__ __forceinline__ float adjusted(float logit, int32_t token, const SampleTerms& row,
                                          const SampleArrays& a) {
  if (row.slot >= 0) {
    const uint32_t seen = a.counts[static_cast<int64_t>(row.slot) * a.n_vocab + token];
    if (seen != 0) {
      if (row.repetition != 1.0f) {
        logit = logit > 0 ? __fdiv_rn(logit, row.repetition) : __fmul_rn(logit, row.repetition);
      }
      const uint32_t n = seen & ~kSeenBit;
      if (n > 0) {
        logit = __fsub_rn(logit, __fmul_rn(row.frequency, static_cast<float>(n)));
        logit = __fsub_rn(logit, row.presence);
      }
    }
  }
  if (row.n_words >= 0) {
    const int32_t word = token / 32;
    const uint32_t bits = word < row.n_words ? a.words[row.first_word + word] : 0;
    if ((bits >> (token % 32) & 1u) == 0) logit = -kInfinity;
  }
  return logit;
}
__device__ __forceinline__ bool is_plain(const SampleTerms& row) {
  return row.slot < 0 && row.n_words < 0;
}

// Keeps the largest logit, the lowest token among equals; token -1: one is not a number.
__device__ __forceinline__ void take_largest(Contender& best, float logit, int32_t token) {
  if (logit > best.value) best = {logit, token, logit};
  if (isnan(logit)) best = {kInfinity, -1, logit};
}

__device__ __forceinline__ ops::SampledToken::State state_of(const Contender& likeliest) {
  if (!isinf(likeliest.value)) return ops::SampledToken::State::kOk;
  return likeliest.token == -1 ? ops::SampledToken::State::kNotANumber
                               : ops::SampledToken::State::kNoToken;
}

}  // namespace hadal::cuda
