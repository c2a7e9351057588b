#pragma once

#include <cstdint>

#include "compute/backends/cuda/elements.cuh"

// Rows of bf16 in units of eight neighbouring channels, which one thread holds: what norms and the
// kernels between sub-layers share.
namespace hadal::cuda {

inline constexpr int kUnitChannels = 8;

// Eight bf16 channels as f32.
struct Channels {
  float v[kUnitChannels];
};
__device__ __forceinline__ Channels widen(uint4 bits) {
  Channels c;
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    c.v[2 * i] = bf16_low(words[i]);
    c.v[2 * i + 1] = bf16_high(words[i]);
  }
  return c;
}
// Nearest even, two at a time; a NaN becomes the canonical one.
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__device__ __forceinline__ uint4 narrow(const Channels& c) {
  return make_uint4(narrow_pair(c.v[0], c.v[1]), narrow_pair(c.v[2], c.v[3]),
                    narrow_pair(c.v[4], c.v[5]), narrow_pair(c.v[6], c.v[7]));
}

// One store of 16 bytes. Of an assignment the compiler may make four of 4 bytes, which cost four
// times the traffic between a multiprocessor and L2.
__device__ __forceinline__ void store_word(void* to, uint4 bits) {
  __stcg(static_cast<uint4*>(to), bits);
}

// A unit at any address of a bf16: one word if `wide`, which says that units begin at multiples of
// 16 bytes.
__device__ __forceinline__ uint4 fetch_unit(const uint16_t* from, bool wide) {
  if (wide) return *reinterpret_cast<const uint4*>(from);
  const auto pair = [&](int i) {
    return static_cast<uint32_t>(from[i]) | static_cast<uint32_t>(from[i + 1]) << 16;
  };
  return make_uint4(pair(0), pair(2), pair(4), pair(6));
}
__device__ __forceinline__ void store_unit(uint16_t* to, uint4 bits, bool wide) {
  if (wide) {
    store_word(to, bits);
    return;
  }
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = static_cast<uint16_t>(words[i]);
    to[2 * i + 1] = static_cast<uint16_t>(words[i] >> 16);
  }
}
// Host: units of rows that are `stride` bf16 apart may be taken as words.
inline bool units_aligned(const void* rows, int64_t stride) {
  return reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride % kUnitChannels == 0;
}

// The same channels of four streams, added with their factors in order.
__device__ __forceinline__ uint4 collapse_unit(const uint4 (&x)[4], const float* pre) {
  Channels s = widen(x[0]);
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) s.v[i] = __fmul_rn(s.v[i], pre[0]);
#pragma unroll
  for (int j = 1; j < 4; ++j) {
    const Channels a = widen(x[j]);
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) s.v[i] = __fadd_rn(s.v[i], __fmul_rn(a.v[i], pre[j]));
  }
  return narrow(s);
}

// bf16(weight * (x * factor)).
__device__ __forceinline__ uint4 norm_unit(uint4 x, uint4 weight, float factor) {
  const Channels a = widen(x), w = widen(weight);
  Channels out;
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) out.v[i] = __fmul_rn(w.v[i], __fmul_rn(a.v[i], factor));
  return narrow(out);
}
// The squares of a unit to `to`, at a multiple of 16 bytes.
__device__ __forceinline__ void store_squares(float* to, uint4 bits) {
  const Channels c = widen(bits);
  float4* four = reinterpret_cast<float4*>(to);
  four[0] = make_float4(__fmul_rn(c.v[0], c.v[0]), __fmul_rn(c.v[1], c.v[1]),
                        __fmul_rn(c.v[2], c.v[2]), __fmul_rn(c.v[3], c.v[3]));
  four[1] = make_float4(__fmul_rn(c.v[4], c.v[4]), __fmul_rn(c.v[5], c.v[5]),
                        __fmul_rn(c.v[6], c.v[6]), __fmul_rn(c.v[7], c.v[7]));
}

// warp_sum32() of n terms that are 0 or more, in shared memory; n is a multiple of 32. The chain of
// adds is what it takes: the next eight terms of a lane are on their way while eight are added.
__device__ __forceinline__ float sum_terms(const float* terms, int n) {
  constexpr int kAhead = 8;
  const float* mine = terms + threadIdx.x % 32;
  const int count = n / 32;
  float next[kAhead], s = 0;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) next[i] = i < count ? mine[32 * i] : 0;
  for (int done = 0; done < count; done += kAhead) {
    float now[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = done + kAhead + i;
      now[i] = next[i];
      next[i] = at < count ? mine[32 * at] : 0;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) s = __fadd_rn(s, now[i]);  // past the end: + 0
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) s = __fadd_rn(s, __shfl_down_sync(0xFFFFFFFFu, s, step));
  return __shfl_sync(0xFFFFFFFFu, s, 0);
}
// 1 / sqrt(mean + eps) of n squares.
__device__ __forceinline__ float rms_factor(float sum, int n, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(n)), eps)));
}

}  // namespace hadal::cuda
