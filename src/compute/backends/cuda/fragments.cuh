#pragma once

#include <cstdint>

#include "compute/backends/cuda/packed.h"

// The operands of bf16 m16n8k16 products in registers: packed weights (packed.h) to bf16 pairs,
// exact for every code and scale. Not for kF32.
namespace hadal::cuda {

// Both halves rounded to nearest even; subnormals are kept.
__device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// d += a b: a 16 x 16 (outputs x k), b 16 x 8 (k x rows), d f32.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^(field - 127) as a pair.
__device__ __forceinline__ uint32_t power_pair(uint32_t field) {
  return field * 0x00800080u;
}

// Eight E2M1 codes to four pairs.
__device__ __forceinline__ void decode_fp4(uint32_t word, uint32_t power, uint32_t (&pair)[4]) {
  pair[0] = mul_bf16x2(fp4_pair(word, 0), power);
  pair[1] = mul_bf16x2(fp4_pair(word, 1), power);
  pair[2] = mul_bf16x2(fp4_pair(word, 2), power);
  pair[3] = mul_bf16x2(fp4_pair(word, 3), power);
}

// Four E4M3 codes to two pairs.
__device__ __forceinline__ void decode_fp8(uint32_t word, uint32_t power, uint32_t& first,
                                           uint32_t& second) {
  const uint32_t even = fp8_first(word);
  const uint32_t odd = fp8_second(word);
  first = mul_bf16x2(even, power);
  second = mul_bf16x2(odd, power);
}

// One block of a strip as a lane holds it: pair[r][j] = inputs 8c+2j, 8c+2j+1 of output g + 8r.
struct BlockPairs {
  uint32_t pair[2][4];

  // The A operand of product s.
  __device__ __forceinline__ void operand(int s, uint32_t (&a)[4]) const {
    a[0] = pair[0][2 * s];
    a[1] = pair[1][2 * s];
    a[2] = pair[0][2 * s + 1];
    a[3] = pair[1][2 * s + 1];
  }
};

// A lane's bytes of one block, from memory to registers (`load`) and from there to bf16 (`pairs`).
// `field`: the block's exponent field, for kFp8Tile.
template <ops::WeightFormat F>
struct BlockBytes;

template <>
struct BlockBytes<ops::WeightFormat::kFp4Row> {
  static constexpr int kBytes = 272;
  uint2 code;
  uint32_t power;  // exponent fields of outputs g and g + 8

  __device__ __forceinline__ void load(const uint8_t* block, int lane) {
    code = *reinterpret_cast<const uint2*>(block + lane * 8);
    power = *reinterpret_cast<const uint16_t*>(block + 256 + lane / 4 * 2);
  }
  __device__ __forceinline__ void pairs(uint32_t, BlockPairs& out) const {
    decode_fp4(code.x, power_pair(power & 0xFFu), out.pair[0]);
    decode_fp4(code.y, power_pair(power >> 8), out.pair[1]);
  }
};

template <>
struct BlockBytes<ops::WeightFormat::kFp8Tile> {
  static constexpr int kBytes = 512;
  uint4 code;

  __device__ __forceinline__ void load(const uint8_t* block, int lane) {
    code = *reinterpret_cast<const uint4*>(block + lane * 16);
  }
  __device__ __forceinline__ void pairs(uint32_t field, BlockPairs& out) const {
    const uint32_t power = power_pair(field);
    decode_fp8(code.x, power, out.pair[0][0], out.pair[0][1]);
    decode_fp8(code.y, power, out.pair[0][2], out.pair[0][3]);
    decode_fp8(code.z, power, out.pair[1][0], out.pair[1][1]);
    decode_fp8(code.w, power, out.pair[1][2], out.pair[1][3]);
  }
};

template <>
struct BlockBytes<ops::WeightFormat::kBf16> {
  static constexpr int kBytes = 1024;
  uint4 low, high;

  __device__ __forceinline__ void load(const uint8_t* block, int lane) {
    low = *reinterpret_cast<const uint4*>(block + lane * 16);
    high = *reinterpret_cast<const uint4*>(block + 512 + lane * 16);
  }
  __device__ __forceinline__ void pairs(uint32_t, BlockPairs& out) const {
    out.pair[0][0] = low.x, out.pair[0][1] = low.y, out.pair[0][2] = low.z, out.pair[0][3] = low.w;
    out.pair[1][0] = high.x, out.pair[1][1] = high.y, out.pair[1][2] = high.z,
    out.pair[1][3] = high.w;
  }
};

}  // namespace hadal::cuda
