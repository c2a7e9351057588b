#pragma once

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

// Element types on the device, bit-equal to compute/formats (elements.h, quantise.h), which is the
// definition. Activations that are quantised must be finite, as there.
namespace hadal::cuda {

__device__ __forceinline__ float bf16_to_float(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
// A pair of bf16 as one word, the lower index in the low half.
__device__ __forceinline__ float bf16_low(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float bf16_high(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// Nearest even; overflow gives infinity, a NaN stays a quiet NaN of the same sign and payload.
__device__ __forceinline__ uint16_t bf16_from_float(float x) {
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
  return static_cast<uint32_t>(bf16_from_float(low)) | static_cast<uint32_t>(bf16_from_float(high))
                                                           << 16;
}
// bf16 and back.
__device__ __forceinline__ float snap_bf16(float x) {
  return bf16_to_float(bf16_from_float(x));
}

// Two E4M3 codes (the first in the low byte) to f32, exact.
__device__ __forceinline__ float2 e4m3x2_to_float(uint16_t codes) {
  const __half2_raw h = __nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3);
  return __half22float2(__half2(h));
}
__device__ __forceinline__ float e4m3_to_float(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}
// Clamps to +-448, nearest even, a zero keeps its sign.
__device__ __forceinline__ uint8_t e4m3_from_float(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

// E2M1, low four bits of `code`: exponent and mantissa bits moved into a float and rescaled.
__device__ __forceinline__ float e2m1_to_float(uint32_t code) {
  const float magnitude = __uint_as_float((code & 7u) << 22) * 0x1p126f;
  return __uint_as_float(__float_as_uint(magnitude) | (code & 8u) << 28);
}
// Nearest, ties to the even code, saturating at 6; the sign stays at zero.
__device__ __forceinline__ uint32_t e2m1_from_float(float x) {
  const float a = fabsf(x);
  const uint32_t code = static_cast<uint32_t>(a > 0.25f) + static_cast<uint32_t>(a >= 0.75f) +
                        static_cast<uint32_t>(a > 1.25f) + static_cast<uint32_t>(a >= 1.75f) +
                        static_cast<uint32_t>(a > 2.5f) + static_cast<uint32_t>(a >= 3.5f) +
                        static_cast<uint32_t>(a > 5.0f);
  return (__float_as_uint(x) >> 31 << 3) | code;
}

// E8M0: 2^(byte - 127); byte 0 is 2^-127. 255 is not expected.
__device__ __forceinline__ float e8m0_to_float(uint32_t byte) {
  return __uint_as_float(byte == 0 ? 0x00400000u : byte << 23);
}
// E8M0 byte of 2^ceil(log2 t). REQUIRES: t is normal, positive and at most 2^127.
__device__ __forceinline__ uint32_t pow2ceil(float t) {
  const uint32_t u = __float_as_uint(t);
  return (u >> 23) + ((u & 0x7FFFFFu) != 0 ? 1u : 0u);
}

// Scales of the three quantisers from the largest magnitude of their group (32, 32, 16 channels).
__device__ __forceinline__ uint32_t aq8_scale(float amax) {
  return pow2ceil(__fmul_rn(fmaxf(amax, 1e-4f), 1.0f / 448.0f));
}
__device__ __forceinline__ uint32_t fq4e8_scale(float amax) {
  return pow2ceil(__fmul_rn(fmaxf(amax, 6 * 0x1p-126f), 1.0f / 6.0f));
}
__device__ __forceinline__ uint8_t fq4e4_scale(float amax) {
  return e4m3_from_float(__fdiv_rn(fmaxf(amax, 6 * 0x1p-9f), 6.0f));
}

// x / 2^(byte - 127), exact: the division by a power of two as a product (bytes 1 to 253, which is
// what aq8_scale and fq4e8_scale give for bf16 inputs).
__device__ __forceinline__ float over_e8m0(float x, uint32_t byte) {
  return x * __uint_as_float((254u - byte) << 23);
}
__device__ __forceinline__ uint8_t aq8_code(float x, uint32_t byte) {
  return e4m3_from_float(over_e8m0(x, byte));
}
__device__ __forceinline__ uint32_t fq4e8_code(float x, uint32_t byte) {
  return e2m1_from_float(over_e8m0(x, byte));
}
__device__ __forceinline__ uint32_t fq4e4_code(float x, uint8_t scale) {
  return e2m1_from_float(__fdiv_rn(x, e4m3_to_float(scale)));
}
// Quantised by AQ8 and back: the bf16 number that an FP8 or FP4 linear takes, as f32.
__device__ __forceinline__ float aq8_value(float x, uint32_t byte) {
  return e4m3_to_float(aq8_code(x, byte)) * e8m0_to_float(byte);
}

// Largest of `x` over groups of `kLanes` neighbouring lanes (a power of two); all lanes get it.
template <int kLanes>
__device__ __forceinline__ float group_max(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// e^x as the reference does it (cpu/row_lanes.inc): f64, relative error below 1e-11, no
// contraction, so that the f32 it is rounded to is the reference's.
__device__ __forceinline__ double exp_f64(double x) {
  x = x < -150.0 ? -150.0 : x;
  x = x > 700.0 ? 700.0 : x;
  const double magic = 0x1.8p52;
  const double t = __dadd_rn(__dmul_rn(x, 0x1.71547652b82fep0), magic);
  const double n = __dsub_rn(t, magic);
  const double r = __dsub_rn(__dsub_rn(x, __dmul_rn(n, 0x1.62e42fefa0000p-1)),
                             __dmul_rn(n, 0x1.cf79abc9e3b3ap-40));
  double p = __dadd_rn(__dmul_rn(r, 1.0 / 3628800), 1.0 / 362880);
  p = __dadd_rn(__dmul_rn(p, r), 1.0 / 40320);
  p = __dadd_rn(__dmul_rn(p, r), 1.0 / 5040);
  p = __dadd_rn(__dmul_rn(p, r), 1.0 / 720);
  p = __dadd_rn(__dmul_rn(p, r), 1.0 / 120);
  p = __dadd_rn(__dmul_rn(p, r), 1.0 / 24);
  p = __dadd_rn(__dmul_rn(p, r), 1.0 / 6);
  p = __dadd_rn(__dmul_rn(p, r), 0.5);
  p = __dadd_rn(__dmul_rn(p, r), 1.0);
  p = __dadd_rn(__dmul_rn(p, r), 1.0);
  const int64_t bits = (static_cast<int64_t>(__double_as_longlong(t)) + 1023) << 52;
  return __dmul_rn(p, __longlong_as_double(bits));
}

// The reference's sums of one row (cpu/row_math.inc) by one warp. `term(i)` is the i-th summand.
//   sum32: lane i % 32 adds its places in order; then 16, 8, 4, 2, 1 apart.
//   sum16: the same over 16 lanes (the upper half of the warp does nothing).
// Every lane gets the sum. The order depends on n alone.
template <class Term>
__device__ __forceinline__ float warp_sum32(int n, Term term) {
  const int lane = threadIdx.x % 32;
  float s = 0;
  int i = 0;
  for (; i + 32 <= n; i += 32) s = __fadd_rn(s, term(i + lane));
  if (i < n) {
    // A rest of 16 or more fills the lower lanes first; a shorter one goes to the upper ones.
    const int at = n - i >= 16 ? lane : lane - 16;
    if (at >= 0 && i + at < n) s = __fadd_rn(s, term(i + at));
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) s = __fadd_rn(s, __shfl_down_sync(0xFFFFFFFFu, s, step));
  return __shfl_sync(0xFFFFFFFFu, s, 0);
}
template <class Term>
__device__ __forceinline__ float warp_sum16(int n, Term term) {
  const int lane = threadIdx.x % 32;
  float s = 0;
  if (lane < 16)
    for (int i = lane; i < n; i += 16) s = __fadd_rn(s, term(i));
#pragma unroll
  for (int step = 8; step > 0; step /= 2) s = __fadd_rn(s, __shfl_down_sync(0xFFFFFFFFu, s, step));
  return __shfl_sync(0xFFFFFFFFu, s, 0);
}

}  // namespace hadal::cuda
