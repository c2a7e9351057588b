#pragma once

#include <climits>
#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"

// The experts of a row (docs/model.md 3.10): one block a row, one thread an expert.
namespace hadal::cuda {

inline constexpr int kMaxChosen = 32;  // experts per row
inline constexpr int kMaxItems = 6;    // experts per thread
inline constexpr int kRouteThreads = 1024;

// exp_f64() with fused steps and a shorter chain: within 1e-15 of it. What becomes of it here is
// rounded to f32, where both are the reference's.
__device__ __forceinline__ double exp_fused(double x) {
  x = x < -150.0 ? -150.0 : x;
  x = x > 700.0 ? 700.0 : x;
  const double magic = 0x1.8p52;
  const double t = __fma_rn(x, 0x1.71547652b82fep0, magic);
  const double n = __dsub_rn(t, magic);
  const double r = __fma_rn(-n, 0x1.cf79abc9e3b3ap-40, __fma_rn(-n, 0x1.62e42fefa0000p-1, x));
  const double r2 = __dmul_rn(r, r), r4 = __dmul_rn(r2, r2), r8 = __dmul_rn(r4, r4);
  const double p01 = __dadd_rn(r, 1.0), p23 = __fma_rn(r, 1.0 / 6, 0.5);
  const double p45 = __fma_rn(r, 1.0 / 120, 1.0 / 24), p67 = __fma_rn(r, 1.0 / 5040, 1.0 / 720);
  const double p89 = __fma_rn(r, 1.0 / 362880, 1.0 / 40320);
  const double low = __fma_rn(r2, p23, p01), middle = __fma_rn(r2, p67, p45);
  const double high = __fma_rn(r2, 1.0 / 3628800, p89);
  const double p = __fma_rn(r8, high, __fma_rn(r4, middle, low));
  return __dmul_rn(p, __hiloint2double((__double2loint(t) + 1023) << 20, 0));
}

// log(1 + u) for u from 0 to 1e14, relative error below 5e-16: 1 + u is 2^k (1 + f) with |f| below
// 0.42, and log(1 + f) = 2 atanh(s) of s = f / (2 + f). The library's has branches for every
// argument, which were most of the kernel's time.
__device__ __forceinline__ double log1p_f64(double u) {
  const int k = (__double2hiint(__dadd_rn(1.0, u)) - 0x3FE6A09E) >> 20;  // 0 below sqrt(2)
  const double power = __hiloint2double((1023 - k) << 20, 0);
  const double f = __fma_rn(u, power, __dsub_rn(power, 1.0));
  const double divisor = __dadd_rn(2.0, f);
  double inverse;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(inverse) : "d"(divisor));  // 20 bits, then two steps
  inverse = __fma_rn(inverse, __fma_rn(-divisor, inverse, 1.0), inverse);
  inverse = __fma_rn(inverse, __fma_rn(-divisor, inverse, 1.0), inverse);
  const double s = __dmul_rn(f, inverse);
  const double z = __dmul_rn(s, s), z2 = __dmul_rn(z, z), z4 = __dmul_rn(z2, z2);
  const double p01 = __fma_rn(z, 2.0 / 5, 2.0 / 3), p23 = __fma_rn(z, 2.0 / 9, 2.0 / 7);
  const double p45 = __fma_rn(z, 2.0 / 13, 2.0 / 11), p67 = __fma_rn(z, 2.0 / 17, 2.0 / 15);
  const double p89 = __fma_rn(z, 2.0 / 21, 2.0 / 19);
  const double low = __fma_rn(z2, p23, p01), high = __fma_rn(z4, p89, __fma_rn(z2, p67, p45));
  const double p = __fma_rn(z4, high, low);
  const double tail = __fma_rn(__dmul_rn(s, z), p, __dadd_rn(s, s));
  return __fma_rn(static_cast<double>(k), 0x1.62e42fefa39efp-1, tail);
}

__device__ __forceinline__ float route_score(float logit) {
  const double x = logit;
  const double softplus = x > 30.0 ? x : log1p_f64(exp_fused(x));
  return static_cast<float>(sqrt(softplus));
}

// Grows with the value (which is no NaN); never 0.
__device__ __forceinline__ uint32_t order_key(float value) {
  const uint32_t u = __float_as_uint(value + 0.0f);  // one zero
  return (u >> 31) != 0 ? ~u : u | 0x80000000u;
}

// A choice that grows with the key and falls with the expert. 0: none.
__device__ __forceinline__ uint64_t candidate(uint32_t key, uint32_t expert) {
  return static_cast<uint64_t>(key) << 32 | (0xFFFFFFFFu - expert);
}
__device__ __forceinline__ int expert_of(uint64_t candidate) {
  return static_cast<int>(0xFFFFFFFFu - static_cast<uint32_t>(candidate));
}

struct RouteJob {
  const float* logits;
  int64_t stride;
  int32_t n_experts;
  const float *bias_text, *bias_image;
  const uint8_t* image;
  int32_t top_k;
  int32_t lane_bits;  // 2^lane_bits lanes share a candidate; times top_k that is at most 32
  bool normalise;
  float scaling;
  int32_t* expert;
  int64_t expert_stride;
  float* weight;
  int64_t weight_stride;
  bool overlap;
};

// Every warp finds the best of its own experts, one after the other; then some lanes per candidate
// count those before it, which is its place in the order of choice (the order of the weights' sum).
// Dynamic shared memory: [warps * top_k] candidates, then their scores. Thread j has the experts
// i * threads + j, i below kItems.
template <int kItems>
__global__ void __launch_bounds__(kRouteThreads) route_kernel(const RouteJob job) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  extern __shared__ uint64_t candidates[];
  __shared__ int chosen[kMaxChosen];
  __shared__ float chosen_score[kMaxChosen];
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = me % 32, n_candidates = threads / 32 * job.top_k;
  auto* scores = reinterpret_cast<float*>(candidates + n_candidates);
  float text[kItems] = {}, picture[kItems] = {};
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int e = i * threads + me;
    if (e >= job.n_experts) break;
    text[i] = job.bias_text[e];
    if (job.bias_image != nullptr) picture[i] = job.bias_image[e];
  }
  follow_previous(job.overlap);
  const int64_t t = blockIdx.x;
  const float* logits = job.logits + t * job.stride;
  const bool image = job.image[t] != 0 && job.bias_image != nullptr;
  float score[kItems] = {};
  uint32_t key[kItems] = {};
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int e = i * threads + me;
    if (e >= job.n_experts) break;
    score[i] = route_score(logits[e]);
    const float s = __fadd_rn(score[i], image ? picture[i] : text[i]);
    key[i] = order_key(s == s ? s : -INFINITY);
  }
  int slot = me / 32 * job.top_k;
#pragma unroll 1
  for (const int end = slot + job.top_k; slot < end; ++slot) {
    int item = 0;
    uint32_t own = key[0];
    float own_score = score[0];
#pragma unroll
    for (int i = 1; i < kItems; ++i) {
      if (key[i] <= own) continue;
      own = key[i];
      own_score = score[i];
      item = i;
    }
    const uint32_t best = __reduce_max_sync(kAll, own);
    const auto expert = static_cast<uint32_t>(item * threads + me);
    bool mine;
    if constexpr (kItems == 1) {  // the lowest lane has the lowest expert
      mine = lane == __ffs(static_cast<int>(__ballot_sync(kAll, own == best))) - 1;
    } else {
      mine = expert == __reduce_min_sync(kAll, own == best ? expert : kAll);
    }
    if (!mine) continue;
    candidates[slot] = best != 0 ? candidate(best, expert) : 0;
    scores[slot] = own_score;
#pragma unroll
    for (int i = 0; i < kItems; ++i)
      if (i == item) key[i] = 0;
  }
  __syncthreads();
  const int lanes = 1 << job.lane_bits, c = me >> job.lane_bits;
  const uint64_t own = c < n_candidates ? candidates[c] : 0;
  int before = 0;
#pragma unroll 6
  for (int i = me & (lanes - 1); i < n_candidates; i += lanes)
    before += candidates[i] > own ? 1 : 0;
  for (int step = lanes / 2; step > 0; step /= 2) before += __shfl_xor_sync(kAll, before, step);
  if (own != 0 && before < job.top_k && (me & (lanes - 1)) == 0) {
    chosen[before] = expert_of(own);
    chosen_score[before] = scores[c];
  }
  __syncthreads();
  if (me >= job.top_k) return;
  const int expert = chosen[me];
  float sum = 0;
  int place = 0;  // in ascending order of experts
  constexpr int kAtOnce = 8;
  for (int begin = 0; begin < job.top_k; begin += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool exists = begin + i < job.top_k;
      sum = __fadd_rn(sum, exists ? chosen_score[begin + i] : 0.0f);
      place += exists && chosen[begin + i] < expert ? 1 : 0;
    }
  }
  const float s = chosen_score[me];
  const float w = job.normalise ? __fdiv_rn(s, __fadd_rn(sum, 1e-20f)) : s;
  job.expert[t * job.expert_stride + place] = expert;
  job.weight[t * job.weight_stride + place] = __fmul_rn(w, job.scaling);
}

}  // namespace hadal::cuda
