#pragma once

#include <cstdint>

// The noise of a draw (engine/sampling/sampler.cc): Philox4x32-10 keyed by the row's seed, of
// (token, position, stream), and -log(-log(u)) of the upper 24 bits of its first word.
namespace hadal::cuda {

struct NoiseKey {
  uint64_t seed, position;
  uint32_t stream;
};

// The first word.
__device__ __forceinline__ uint32_t noise_word(const NoiseKey& key, uint32_t token) {
  uint32_t c0 = token, c1 = static_cast<uint32_t>(key.position);
  uint32_t c2 = static_cast<uint32_t>(key.position >> 32), c3 = key.stream;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c0, b = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}
__device__ __forceinline__ uint32_t noise_bits(const NoiseKey& key, uint32_t token) {
  return noise_word(key, token) >> 8;
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
