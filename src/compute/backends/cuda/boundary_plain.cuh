#pragma once

#include "compute/backends/cuda/boundary_terms.cuh"

// A boundary of any shape: one block per row.
namespace hadal::cuda {

inline constexpr int kPlainThreads = 256;
inline constexpr int kPlainStreams = 8;

// Sum over the block in a fixed tree; all threads get it.
__device__ inline float block_sum(float x, float* buffer) {
  __syncthreads();
  buffer[threadIdx.x] = x;
  __syncthreads();
  for (int step = kPlainThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) buffer[threadIdx.x] += buffer[threadIdx.x + step];
    __syncthreads();
  }
  return buffer[0];
}

template <int C>
__device__ inline void finish_plain(const BoundaryTerms& p, int64_t t, const float* logits) {
  float a[C * C];
#pragma unroll
  for (int j = 0; j < C; ++j) {
    float top = logits[j * C];
#pragma unroll
    for (int k = 1; k < C; ++k) top = fmaxf(top, logits[j * C + k]);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < C; ++k) sum += a[j * C + k] = expf(logits[j * C + k] - top);
#pragma unroll
    for (int k = 0; k < C; ++k) a[j * C + k] = __fdiv_rn(a[j * C + k], sum) + p.hc_eps;
  }
  sinkhorn<C>(a, p.sinkhorn_iters, p.hc_eps);
#pragma unroll
  for (int i = 0; i < C * C; ++i) p.comb[t * C * C + i] = a[i];
}

__global__ void __launch_bounds__(kPlainThreads) boundary_plain_kernel(BoundaryTerms p) {
  __shared__ float buffer[kPlainThreads];
  __shared__ float logits[2 * kPlainStreams + kPlainStreams * kPlainStreams];
  const int64_t t = blockIdx.x;
  const int c = p.c;
  uint16_t* row = p.streams + t * c * p.d;
  const bool expands = p.y != nullptr && t < p.n_expand;
  const bool taps = p.tap != nullptr && t < p.n_rows;
  const bool collapses = p.norm != nullptr && t < p.n_rows;
  float squares_h = 0, squares_x = 0;
  for (int64_t i = threadIdx.x; i < p.d; i += kPlainThreads) {
    float in[kPlainStreams], out[kPlainStreams];
    for (int j = 0; j < c; ++j) out[j] = in[j] = bf16_to_float(row[j * p.d + i]);
    if (expands) {
      const float y = bf16_to_float(p.y[t * p.y_stride + i]);
      for (int k = 0; k < c; ++k) {
        float s = in[0] * p.comb[t * c * c + k];
        for (int j = 1; j < c; ++j) s += in[j] * p.comb[(t * c + j) * c + k];
        const uint16_t bits = bf16_from_float(y * p.post[t * c + k] + s);
        row[k * p.d + i] = bits;
        out[k] = bf16_to_float(bits);
      }
    }
    for (int j = 0; j < c; ++j) squares_x = fmaf(out[j], out[j], squares_x);
    if (taps) {
      float s = out[0];
      for (int j = 1; j < c; ++j) s += out[j];
      p.tap[t * p.tap_stride + i] = bf16_from_float(__fdiv_rn(s, static_cast<float>(c)));
    }
    if (collapses) {
      float s = out[0] * p.pre_in[t * c];
      for (int j = 1; j < c; ++j) s += out[j] * p.pre_in[t * c + j];
      const uint16_t bits = bf16_from_float(s);
      p.h[t * p.h_stride + i] = bits;
      squares_h = fmaf(bf16_to_float(bits), bf16_to_float(bits), squares_h);
    }
  }
  if (collapses) {
    const float mean = __fdiv_rn(block_sum(squares_h, buffer), static_cast<float>(p.d));
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.norm_eps));
    uint16_t* h = p.h + t * p.h_stride;
    for (int64_t i = threadIdx.x; i < p.d; i += kPlainThreads)
      h[i] = bf16_from_float(bf16_to_float(p.norm[i]) * (bf16_to_float(h[i]) * r));
  }
  if (p.mix == nullptr || t >= p.n_mix) return;
  const int64_t k = c * p.d;
  const float mean = __fdiv_rn(block_sum(squares_x, buffer), static_cast<float>(k));
  const float r = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.norm_eps));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = warp; i < 2 * c + c * c; i += kPlainThreads / 32) {
    const float* w = reinterpret_cast<const float*>(p.mix) + i * k;
    float s = 0;
    for (int64_t at = lane; at < k; at += 32) s = fmaf(w[at], bf16_to_float(row[at]), s);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) s += __shfl_xor_sync(0xFFFFFFFFu, s, step);
    if (lane == 0) logits[i] = s * r;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * c + c * c; i += kPlainThreads)
    logits[i] = mix_term(p, t, c, i, logits[i], site_term(p, c, i));
  __syncthreads();
  if (threadIdx.x != 0) return;
  const float* comb = logits + 2 * c;
  switch (c) {
    case 1:
      return finish_plain<1>(p, t, comb);
    case 2:
      return finish_plain<2>(p, t, comb);
    case 3:
      return finish_plain<3>(p, t, comb);
    case 4:
      return finish_plain<4>(p, t, comb);
    case 5:
      return finish_plain<5>(p, t, comb);
    case 6:
      return finish_plain<6>(p, t, comb);
    case 7:
      return finish_plain<7>(p, t, comb);
    default:
      return finish_plain<8>(p, t, comb);
  }
}

}  // namespace hadal::cuda
