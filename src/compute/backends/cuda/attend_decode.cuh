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

// Bytes of two words by their number, 0 ... 7; 8 more gives zeros where the byte is below 128.
// Integer additions, shifts by multiplying, keep to another pipe than these and masks.
__device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t which) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(out) : "r"(a), "r"(b), "r"(which));
  return out;
}

// Four E4M3 codes (word, lowest first) to two pairs.
__device__ __forceinline__ void decode_e4m3(uint32_t word, uint32_t factor, uint32_t* out) {
  const uint32_t sign = word & 0x80808080u, rest = word & 0x7F7F7F7Fu;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t rests = pick_bytes(rest, sign, i == 0 ? 0x9180u : 0xB3A2u);
    const uint32_t signs = pick_bytes(rest, sign, i == 0 ? 0x5848u : 0x7A6Au);
    out[i] = multiply_bf16(rests * 16 + signs, factor);
  }
}
// Eight E2M1 codes (word, lowest nibble first) to four pairs.
__device__ __forceinline__ void decode_e2m1(uint32_t word, uint32_t factor, uint32_t* out) {
  const uint32_t even = word & 0x0F0F0F0Fu, odd = word >> 4 & 0x0F0F0F0Fu;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t codes = pick_bytes(even, odd, 0xC480u + 0x1111u * i);
    // Sign to bit 15, exponent and fraction to bits 8 ... 6 of each half.
    out[i] = multiply_bf16((codes * 0x1040u) & 0x81C081C0u, factor);
  }
}

}  // namespace hadal::cuda
