#pragma once

#include "compute/backends/cuda/elements.cuh"

namespace hadal::cuda {

// Eight bf16 values as pairs.
struct Octet {
  uint32_t pair[4];
};

__device__ __forceinline__ Octet load_octet(const uint16_t* x, int64_t column, int64_t n_columns,
                                            bool aligned) {
  Octet o = {};
  if (aligned && column + 8 <= n_columns) {
    const uint4 v = *reinterpret_cast<const uint4*>(x + column);
    o.pair[0] = v.x, o.pair[1] = v.y, o.pair[2] = v.z, o.pair[3] = v.w;
    return o;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (column + j < n_columns)
      o.pair[j / 2] |= static_cast<uint32_t>(x[column + j]) << (j % 2 * 16);
  return o;
}

// Two numbers that bf16 holds exactly.
__device__ __forceinline__ uint32_t exact_pair(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

// AQ8's scale of a group of 32 that four neighbouring lanes hold.
__device__ __forceinline__ uint32_t octet_scale(const Octet& o) {
  float amax = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    amax = fmaxf(amax, fmaxf(fabsf(bf16_low(o.pair[j])), fabsf(bf16_high(o.pair[j]))));
  return aq8_scale(group_max<4>(amax));
}

// AQ8 and back (docs/model.md 3.0) of such a group, in place.
__device__ __forceinline__ void snap_octet(Octet& o) {
  const uint32_t byte = octet_scale(o);
  const float down = __uint_as_float((254u - byte) << 23), up = __uint_as_float(byte << 23);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 v = make_float2(bf16_low(o.pair[j]) * down, bf16_high(o.pair[j]) * down);
    const float2 q = e4m3x2_to_float(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3));
    o.pair[j] = exact_pair(q.x * up, q.y * up);
  }
}

// Octet c of a block in the order of wide.h.
__device__ __forceinline__ void store_tiled(uint16_t* out, int64_t row, int64_t block, int c,
                                            int64_t n_blocks, const Octet& o) {
  auto* to =
      reinterpret_cast<uint32_t*>(out + ((row / 8 * n_blocks + block) * 4 * 8 + row % 8) * 8);
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j * 32 + c] = o.pair[j];
}

// exp_f64(x) rounded to f32, in half of its instructions: products and sums are contracted. That
// moves the f64 by some 1e-16 of itself; its f32 is the same for every bf16 x (all were compared)
// and for 30 million others. Where x is no number, so is a product with it.
__device__ __forceinline__ float exp_rounded(float x) {
  const double d = fmaxf(fminf(x, 700.0f), -150.0f);
  const double magic = 0x1.8p52;
  const double t = __fma_rn(d, 0x1.71547652b82fep0, magic);
  const double n = __dsub_rn(t, magic);
  const double r = __fma_rn(n, -0x1.cf79abc9e3b3ap-40, __fma_rn(n, -0x1.62e42fefa0000p-1, d));
  double p = __fma_rn(r, 1.0 / 3628800, 1.0 / 362880);
  p = __fma_rn(p, r, 1.0 / 40320);
  p = __fma_rn(p, r, 1.0 / 5040);
  p = __fma_rn(p, r, 1.0 / 720);
  p = __fma_rn(p, r, 1.0 / 120);
  p = __fma_rn(p, r, 1.0 / 24);
  p = __fma_rn(p, r, 1.0 / 6);
  p = __fma_rn(p, r, 0.5);
  p = __fma_rn(p, r, 1.0);
  p = __fma_rn(p, r, 1.0);
  const int64_t bits = (static_cast<int64_t>(__double_as_longlong(t)) + 1023) << 52;
  return static_cast<float>(__dmul_rn(p, __longlong_as_double(bits)));
}

// weight * (silu(gate) * up) with the clamps of docs/model.md 3.10; limit 0: none.
__device__ __forceinline__ float gated(float gate, float up, float limit, float weight) {
  if (limit > 0) {
    gate = fminf(gate, limit);
    up = fmaxf(fminf(up, limit), -limit);
  }
  return __fmul_rn(__fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, exp_rounded(-gate))), up), weight);
}

// Columns column .. column + 7 of that for a row: d_inter gates, then as many to multiply.
__device__ __forceinline__ Octet gated_octet(const uint16_t* row, int64_t column, int64_t d_inter,
                                             float limit, float weight) {
  const Octet gate = load_octet(row, column, d_inter, true);
  const Octet mult = load_octet(row + d_inter, column, d_inter, true);
  Octet a;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    a.pair[j] = bf16_pair(gated(bf16_low(gate.pair[j]), bf16_low(mult.pair[j]), limit, weight),
                          gated(bf16_high(gate.pair[j]), bf16_high(mult.pair[j]), limit, weight));
  }
  return a;
}

}  // namespace hadal::cuda
