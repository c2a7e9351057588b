#pragma once

#include <cstdint>

#include "compute/backends/cuda/elements.cuh"

// What the kernels of a boundary share: their parameters and the end of a mix.
namespace hadal::cuda {

inline constexpr int kTileRows = 16;  // rows of one matrix instruction

// ops::BoundaryArgs with what scratch is cut into. Null means absent, as there.
struct BoundaryTerms {
  int32_t c;
  int64_t d;
  int32_t n_rows, n_expand, n_mix;
  uint16_t* streams;
  const uint16_t* y;
  int64_t y_stride;
  float *post, *comb;
  uint16_t* tap;
  int64_t tap_stride;
  const float* pre_in;
  const uint16_t* norm;
  uint16_t* h;
  int64_t h_stride;
  const std::byte* mix;  // packed units or plain f32
  const float *base, *scale;
  float* pre;
  int32_t sinkhorn_iters;
  float hc_eps, norm_eps;
  bool overlap;  // the rows' kernel may run beside the one before it
  // scratch
  float* squares;  // [n_mix] sum of squares of a row's streams
  float* partial;  // [tiles][parts][16][24]

  __device__ bool expands(int64_t t) const { return y != nullptr && t < n_expand; }
  __device__ bool taps(int64_t t) const { return tap != nullptr && t < n_rows; }
  __device__ bool collapses(int64_t t) const { return norm != nullptr && t < n_rows; }
  __device__ bool mixes(int64_t t) const { return mix != nullptr && t < n_mix; }
  __host__ __device__ int n_tiles() const { return (n_mix + kTileRows - 1) / kTileRows; }
};

__device__ __forceinline__ float sigmoid(float x) {
  return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x)));
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;  // within one unit in the last place
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The softmax of the rows plus eps, then the columns' and rows' steps on the C x C matrix of one
// row of the batch, held by one thread: a[j][k] -> u[j] a[j][k] v[k], where a step changes u or v.
// Ends with the columns.
template <int C>
__device__ __forceinline__ void sinkhorn(float (&a)[C * C], int iterations, float eps) {
  float u[C], v[C];
#pragma unroll
  for (int j = 0; j < C; ++j) u[j] = v[j] = 1;
#pragma unroll 1
  for (int i = 0; i < iterations; ++i) {
    if (i > 0) {
#pragma unroll
      for (int j = 0; j < C; ++j) {
        float s = a[j * C] * v[0];
#pragma unroll
        for (int k = 1; k < C; ++k) s = fmaf(a[j * C + k], v[k], s);
        u[j] *= reciprocal(fmaf(u[j], s, eps));
      }
    }
#pragma unroll
    for (int k = 0; k < C; ++k) {
      float s = a[k] * u[0];
#pragma unroll
      for (int j = 1; j < C; ++j) s = fmaf(a[j * C + k], u[j], s);
      v[k] *= reciprocal(fmaf(v[k], s, eps));
    }
  }
#pragma unroll
  for (int i = 0; i < C * C; ++i) a[i] *= u[i / C] * v[i % C];
}

// What a site adds to term i of 2 C + C C.
struct SiteTerm {
  float scale, base;
};
__device__ __forceinline__ SiteTerm site_term(const BoundaryTerms& p, int c, int i) {
  return {p.scale[i < c ? 0 : i < 2 * c ? 1 : 2], p.base[i]};
}

// Term i from its mixed value: writes pre or post, or returns the logit of comb.
__device__ __forceinline__ float mix_term(const BoundaryTerms& p, int64_t t, int c, int i, float m,
                                          SiteTerm site) {
  const float logit = __fadd_rn(__fmul_rn(m, site.scale), site.base);
  if (i < c) p.pre[t * c + i] = __fadd_rn(sigmoid(logit), p.hc_eps);
  if (i >= c && i < 2 * c) p.post[t * c + i - c] = 2.0f * sigmoid(logit);
  return logit;
}

}  // namespace hadal::cuda
