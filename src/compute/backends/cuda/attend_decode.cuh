#pragma once

#include <cstdint>

#include <cuda_bf16.h>

// Cache records as bf16 numbers by moving bits (a bf16 product of the moved bits with a power of
// two is exact, subnormals included). All values come out times 2^-8, which leaves room for the
// scales' exponents; scores and weights make up for it.
namespace hadal::cuda {

inline constexpr float kRecordUnscale = 256.0f;

__device__ __forceinline__ uint32_t multiply_bf16(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("mul.rn.bf16x2 %0, %1, %2;\n" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
__device__ __forceinline__ uint32_t twice(uint32_t bf16) {
  return bf16 | bf16 << 16;
}

// 2^-8 times an E8M0 scale, as a factor of moved E4M3 bits: 2^(byte - 127 + 120 - 8) in both
// halves. REQUIRES: byte <= 142, a scale of at most 2^15; larger ones are cut to that.
__device__ __forceinline__ uint32_t window_factor(uint32_t byte) {
  return twice(min(byte + 112u, 254u) << 7);
}
// The same for the lower two of a word's E4M3 scales and moved E2M1 bits: s * 2^(126 - 8).
__device__ __forceinline__ void entry_factors(uint32_t codes, uint32_t (&factors)[2]) {
  const uint32_t apart = __byte_perm(codes, 0, 0x4140);                     // a half each
  const uint32_t s = multiply_bf16(apart << 4 & 0x07F007F0u, 0x7B807B80u);  // s, exact
  const uint32_t both = multiply_bf16(s, 0x7A807A80u);
  factors[0] = __byte_perm(both, 0, 0x1010);
  factors[1] = __byte_perm(both, 0, 0x3232);
}

// Four E4M3 codes (word, lowest first) to two pairs.
__device__ __forceinline__ void decode_e4m3(uint32_t word, uint32_t factor, uint32_t* out) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t x = __byte_perm(word, 0, i == 0 ? 0x1404 : 0x3424);  // code << 8 in each half
    out[i] = multiply_bf16((x >> 4 & 0x07F007F0u) | (x & 0x80008000u), factor);
  }
}
// Eight E2M1 codes (word, lowest nibble first) to four pairs.
__device__ __forceinline__ void decode_e2m1(uint32_t word, uint32_t factor, uint32_t* out) {
  const uint32_t low = word << 4;  // even nibbles in the upper half of each byte
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Byte i of `low` over byte i of `word`: code << 12 in each half, other bits below.
    const uint32_t x = __byte_perm(low, word, (4u + i) << 12 | i << 4);
    out[i] = multiply_bf16((x >> 6 & 0x01C001C0u) | (x & 0x80008000u), factor);
  }
}

}  // namespace hadal::cuda
