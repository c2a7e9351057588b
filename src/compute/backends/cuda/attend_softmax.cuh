#pragma once

#include "compute/backends/cuda/attend_tile.cuh"

// What both attention kernels do with a product of Q, so that they give the same bits. A warpgroup
// has 64 heads; its thread two of their rows: r and r + 8, with pairs of columns (attend_mma.cuh).
namespace hadal::cuda {

struct RowPair {
  float v[2];
};

// First of the two rows of a thread of a warpgroup.
__device__ __forceinline__ int first_row(int thread) {
  return thread % 128 / 32 * 16 + thread % 32 / 4;
}

// Of products to powers of two: d^-0.5 log2(e), and what records lack.
__device__ __forceinline__ float product_scale(const AttendJob& job) {
  return job.scale * kRecordUnscale * kLog2e;
}
inline constexpr float kNoMaximum = -1e30f;

// Products of Q with kN keys: two for a thread's row in each eight of them.
template <int kN>
__device__ __forceinline__ void score_keys(uint32_t q_at, uint32_t keys_at, uint32_t column_bytes,
                                           float (&s)[kN / 2]) {
  const uint64_t q = k_major_operand(q_at), keys = k_major_operand(keys_at);
  mma_fence();
#pragma unroll
  for (int c = 0; c < kD / 64; ++c) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma_scores(s, q + further(c * kColumnBytes + 32 * k),
                 keys + further(c * column_bytes + 32 * k), c > 0 || k > 0);
  }
  mma_commit();
  mma_wait();
  settle(s);
}

// -inf where no key is, of 32 keys.
__device__ __forceinline__ void mask_keys(float* s, int keys, uint32_t present) {
  if (present == 0xFFFFFFFFu) return;
  const uint32_t there = present >> 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < keys / 2; ++i)
    s[i] = (there >> (8 * (i / 4) + i % 2) & 1) != 0 ? s[i] : -INFINITY;
}

// Largest of a row's products with kKeys keys.
template <int kKeys>
__device__ __forceinline__ RowPair row_maximum(const float* s) {
  RowPair top;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    float m = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) m = fmaxf(m, fmaxf(s[4 * j + 2 * e], s[4 * j + 2 * e + 1]));
    top.v[e] = quad_max(m);
  }
  return top;
}

// Weights times 2^8 of 16 keys against `top`; returns the lane's parts of their sums. keep(e, j,
// pair) has the two of row e and eight keys j as bf16.
template <class Keep>
__device__ __forceinline__ RowPair weigh_quarter(const float* s, const RowPair& top, float scale,
                                                 const Keep& keep) {
  RowPair sum;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float base = 8.0f - top.v[e] * scale;
    float part[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float a = exp2_fast(fmaf(s[4 * j + 2 * e], scale, base));
      const float b = exp2_fast(fmaf(s[4 * j + 2 * e + 1], scale, base));
      part[j] = a + b;
      const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
      keep(e, j, *reinterpret_cast<const uint32_t*>(&pair));
    }
    sum.v[e] = part[0] + part[1];
  }
  return sum;
}

// The sums of the four lanes' parts.
__device__ __forceinline__ RowPair quarter_sums(const RowPair& parts) {
  return {quad_sum(parts.v[0]), quad_sum(parts.v[1])};
}

// What earlier sums fade by when the maximum rises.
__device__ __forceinline__ float fade_of(float before, float now, float scale) {
  return exp2_fast((before - now) * scale);
}

// What sums are multiplied with in the end: `first` and `second` are the weights of both halves.
__device__ __forceinline__ float final_factor(float first, float second, float sink, float maximum,
                                              float scale) {
  const float of_sink = exp2_fast(fmaf(sink, kLog2e, 8.0f - maximum * scale));
  return kRecordUnscale * __frcp_rn((first + second) + of_sink);
}

// Two neighbouring channels as bf16; rotated back if they are rotary ones.
__device__ __forceinline__ uint32_t output_pair(float x0, float x1, bool rotary, float2 angle) {
  if (rotary) {
    const float y0 = __bfloat162float(__float2bfloat16_rn(x0));
    const float y1 = __bfloat162float(__float2bfloat16_rn(x1));
    x0 = y0 * angle.x + y1 * angle.y;
    x1 = y1 * angle.x - y0 * angle.y;
  }
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x0, x1);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Word i of lane t of a quad goes to word t of lane i.
__device__ __forceinline__ void turn_quad(uint32_t (&w)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, upper = (threadIdx.x & 2) != 0;
  const uint32_t a = __shfl_xor_sync(0xFFFFFFFFu, odd ? w[0] : w[1], 1);
  const uint32_t b = __shfl_xor_sync(0xFFFFFFFFu, odd ? w[2] : w[3], 1);
  const uint32_t x[4] = {odd ? a : w[0], odd ? w[1] : a, odd ? b : w[2], odd ? w[3] : b};
  const uint32_t c = __shfl_xor_sync(0xFFFFFFFFu, upper ? x[0] : x[2], 2);
  const uint32_t d = __shfl_xor_sync(0xFFFFFFFFu, upper ? x[1] : x[3], 2);
  w[0] = upper ? c : x[0];
  w[1] = upper ? d : x[1];
  w[2] = upper ? x[2] : c;
  w[3] = upper ? x[3] : d;
}

}  // namespace hadal::cuda
