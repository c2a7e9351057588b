#pragma once

#include <cstdint>

// The noise of a draw (gumbel_noise() of engine/sampling/sampler.h): of four neighbouring tokens
// one Philox4x32-10 gives a word each, and -log(-log(u)) of its upper 24 bits is the noise.
namespace hadal::cuda {

struct NoiseKey {
  uint64_t seed, position;
  uint32_t stream;
};

// The same, for all lanes of a warp that agree on it and together call this: the compiler then
// keeps what follows from it in registers of the warp.
__device__ inline NoiseKey of_warp(const NoiseKey& key) {
  const auto whole = [](uint64_t x) {
    return uint64_t{__reduce_max_sync(0xFFFFFFFFu, static_cast<uint32_t>(x >> 32))} << 32 |
           __reduce_max_sync(0xFFFFFFFFu, static_cast<uint32_t>(x));
  };
  return {whole(key.seed), whole(key.position), __reduce_max_sync(0xFFFFFFFFu, key.stream)};
}

// Both halves of a product.
struct WidePair {
  uint32_t high, low;
};
__device__ __forceinline__ WidePair multiply_wide(uint32_t a, uint32_t b) {
  WidePair out;
#ifdef __CUDA_ARCH__
  // Spelled, because the compiler adds a zero to each upper half of a 64-bit product that it makes.
  asm("{\n"
      ".reg .u64 p;\n"
      "mul.wide.u32 p, %2, %3;\n"
      "mov.b64 {%1, %0}, p;\n"
      "}\n"
      : "=r"(out.high), "=r"(out.low)
      : "r"(a), "r"(b));
#else
  const uint64_t p = static_cast<uint64_t>(a) * b;
  out = {static_cast<uint32_t>(p >> 32), static_cast<uint32_t>(p)};
#endif
  return out;
}

// The words of a row's tokens, four neighbours at a time. Only the first word of the counter
// differs, so that the first two rounds have one product each, and what they add is worked out
// once: 18 products a call.
class NoiseWords {
 public:
  __device__ explicit NoiseWords(const NoiseKey& key)
      : k0_(static_cast<uint32_t>(key.seed)), k1_(static_cast<uint32_t>(key.seed >> 32)) {
    const auto low = static_cast<uint32_t>(key.position);
    const WidePair b = multiply_wide(kSecond, static_cast<uint32_t>(key.position >> 32));
    const WidePair a = multiply_wide(kFirst, b.high ^ low ^ k0_);
    first_ = key.stream ^ k1_;
    second0_ = b.low ^ (k0_ + kStep0);
    second2_ = a.high ^ (k1_ + kStep1);
    third2_ = a.low ^ (k1_ + 2 * kStep1);
  }
  // Of tokens 4 * four to 4 * four + 3.
  __device__ __forceinline__ uint4 of(uint32_t four) const {
    WidePair a = multiply_wide(kFirst, four);
    WidePair b = multiply_wide(kSecond, a.high ^ first_);
    uint32_t c0 = b.high ^ second0_, c1 = b.low, c2 = a.low ^ second2_, c3 = 0;
#pragma unroll
    for (uint32_t round = 2; round < 10; ++round) {
      a = multiply_wide(kFirst, c0);
      b = multiply_wide(kSecond, c2);
      c0 = b.high ^ c1 ^ (k0_ + round * kStep0);
      c1 = b.low;
      c2 = a.high ^ (round == 2 ? third2_ : c3 ^ (k1_ + round * kStep1));
      c3 = a.low;
    }
    return {c0, c1, c2, c3};
  }

 private:
  static constexpr uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;
  static constexpr uint32_t kStep0 = 0x9E3779B9u, kStep1 = 0xBB67AE85u;
  uint32_t k0_, k1_;
  // What the first three rounds add to the first and the third word besides what differs.
  uint32_t first_, second0_, second2_, third2_;
};

__device__ __forceinline__ uint32_t noise_bits(const NoiseKey& key, uint32_t token) {
  const uint4 words = NoiseWords(key).of(token / 4);
  const uint32_t k = token % 4;
  return (k == 0 ? words.x : k == 1 ? words.y : k == 2 ? words.z : words.w) >> 8;
}

// The f32 is that of the host for each of the 2^24 arguments (tests/conformance/sampler).
__device__ __noinline__ float noise_value(uint32_t bits) {
  const double u = (static_cast<double>(bits) + 0.5) * 0x1p-24;
  return static_cast<float>(-log(-log(u)));
}

// noise_value within kNoiseMargin / 2, at a tenth of its cost.
inline constexpr float kNoiseMargin = 1e-3f;
__device__ __forceinline__ float noise_estimate(uint32_t bits) {
  const float rest = (static_cast<float>((1u << 24) - bits) - 0.5f) * 0x1p-24f;  // 1 - u
  const float u = (static_cast<float>(bits) + 0.5f) * 0x1p-24f;
  const float t = rest < 0.01f ? rest * (1 + rest * (0.5f + rest * (1.0f / 3))) : -__logf(u);
  return -__logf(t);
}

}  // namespace hadal::cuda
