#pragma once

#include "compute/backends/cuda/sampler_block.cuh"
#include "compute/backends/cuda/sampler_noise.cuh"

// The draw: argmax of logit / T + noise. Noise in f64 is dear, so every token gets an estimate
// first, and only those within its error of the best are listed and drawn exactly.
namespace hadal::cuda {

// No noise exceeds -log(-log(1 - 2^-25)) = 17.33.
inline constexpr float kMaxNoise = 17.4f;

__device__ __forceinline__ float float_of(uint32_t key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7FFFFFFFu : ~key);
}

class Draw {
 public:
  __device__ Draw(DrawList& list, const NoiseKey& key, float temperature) : list_(list), key_(key) {
    inverse_t_ = __fdiv_rn(1.0f, temperature);
  }

  // By all threads, before the first offer; a barrier must follow.
  __device__ void start() {
    if (threadIdx.x == 0) {
      list_.n = 0;
      list_.bound = 0;
    }
  }
  // Raises the bound by a token that is surely kept.
  __device__ void raise(float logit, int32_t token) {
    if (!may_win(logit)) return;
    raise_to(__fmul_rn(logit, inverse_t_) +
             noise_estimate(noise_bits(key_, static_cast<uint32_t>(token))));
  }
  // Takes over what other threads of the block found.
  __device__ void refresh() {
    bound_ = fmaxf(bound_, float_of(*static_cast<volatile uint32_t*>(&list_.bound)));
  }
  // Cheap and rarely true: offers follow only where it is, in a loop of their own, so that the
  // lanes of a warp do not wait for one another's.
  __device__ __forceinline__ bool may_win(float logit) const {
    return __fmul_rn(logit, inverse_t_) + kMaxNoise >= bound_;
  }
  // `kept` says whether truncation leaves the token; asked only for those that may win.
  template <class Kept>
  __device__ void offer(float logit, int32_t token, Kept kept) {
    if (!may_win(logit)) return;
    const float scaled = __fmul_rn(logit, inverse_t_);
    const uint32_t bits = noise_bits(key_, static_cast<uint32_t>(token));
    const float estimate = scaled + noise_estimate(bits);
    if (!(estimate + kNoiseMargin >= bound_) || isinf(logit) || !kept(logit, token)) return;
    raise_to(estimate);
    const uint32_t at = atomicAdd(&list_.n, 1u);
    if (at < DrawList::kSize) {
      list_.entries[at] = {scaled, token, logit};
      list_.bits[at] = bits;
    } else {
      take(scaled, bits, token, logit);
    }
  }
  // This thread's best, after a barrier that follows all offers.
  __device__ Contender best() {
    refresh();
    const int n = min(static_cast<int>(list_.n), DrawList::kSize);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      const Contender& e = list_.entries[i];
      if (e.value + noise_estimate(list_.bits[i]) + kNoiseMargin >= bound_)
        take(e.value, list_.bits[i], e.token, e.logit);
    }
    return best_;
  }

 private:
  __device__ void take(float scaled, uint32_t bits, int32_t token, float logit) {
    const Contender mine = {__fadd_rn(scaled, noise_value(bits)), token, logit};
    if (wins(mine, best_)) best_ = mine;
  }
  __device__ void raise_to(float estimate) {
    const float sure = estimate - kNoiseMargin;
    if (!(sure > bound_)) return;
    bound_ = sure;
    atomicMax(&list_.bound, key_of(sure));
  }

  DrawList& list_;
  const NoiseKey key_;
  float inverse_t_;
  float bound_ = -__builtin_huge_valf();
  Contender best_ = {-__builtin_huge_valf(), INT_MAX, 0};
};

}  // namespace hadal::cuda
