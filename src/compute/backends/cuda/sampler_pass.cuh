#pragma once

#include "compute/backends/cuda/sampler_slice.cuh"

// The draw among all tokens of a row in one pass. Four tokens' noise costs some 80 instructions,
// its logarithms and the list are for the few that may win.
namespace hadal::cuda {

#ifndef DRAW_UNROLL
#define DRAW_UNROLL 1
#endif
inline constexpr int kDrawUnroll = DRAW_UNROLL;
// What may win: listed, and the bound raised by it.
__device__ __noinline__ void offer_token(DrawList& list, float logit, uint32_t word, int32_t token,
                                         float inverse_t) {
  const float scaled = __fmul_rn(logit, inverse_t);
  const float estimate = scaled + noise_estimate(word >> 8);
  const float bound = float_of(*static_cast<volatile uint32_t*>(&list.bound));
  if (!(estimate + kNoiseMargin >= bound) || isinf(logit)) return;
  if (estimate - kNoiseMargin > bound) atomicMax(&list.bound, key_of(estimate - kNoiseMargin));
  const uint32_t at = atomicAdd(&list.n, 1u);
  if (at < DrawList::kSize) {
    list.entries[at] = {scaled, token, logit};
    list.bits[at] = word >> 8;
  } else {
    const float value = __fadd_rn(scaled, noise_value(word >> 8));
    atomicMax(&list.best, static_cast<unsigned long long>(packed(key_of(value), token)));
  }
}
// This thread's best of the list, after a barrier.
__device__ inline uint64_t best_listed(const DrawList& list) {
  const float bound = float_of(list.bound);
  const int n = min(static_cast<int>(list.n), DrawList::kSize);
  uint64_t best = threadIdx.x == 0 ? list.best : 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kStreamThreads) {
    const Contender& e = list.entries[i];
    if (!(e.value + noise_estimate(list.bits[i]) + kNoiseMargin >= bound)) continue;
    const uint64_t mine = packed(key_of(__fadd_rn(e.value, noise_value(list.bits[i]))), e.token);
    best = mine > best ? mine : best;
  }
  return best;
}

// Whether a token may reach a value `unit`, given e^(logit / T - unit) and its word of noise: that
// u of its noise is so close to 1.
__device__ __forceinline__ bool may_reach(uint32_t word, float e) {
  const float upper = __uint_as_float((word >> 9) + 0x3F800000u);  // 1 + u, down to 23 bits
  return upper + e >= 2.0f - 0x1p-20f;
}
__device__ __forceinline__ float slack_of(float bound) {
  return kNoiseMargin + fabsf(bound) * 1e-6f;
}
__device__ __forceinline__ float one_of(const float4& v, int k) {
  return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w;
}

// A thread's fours of its slice one after the other, the next ones on their way to shared memory.
class QuadStream {
 public:
  __device__ QuadStream(const StreamSlice& slice, float4 (*ring)[kStreamThreads])
      : slice_(slice), ring_(ring) {
    for (int q = 0; q < kQuadsAhead; ++q) fetch(q);
  }
  __device__ __forceinline__ float4 take(int q) {
    const int i = slice_.place(0, q);
    if (!slice_.quick)
      return four_logits(slice_.row, slice_.a, slice_.from, i, slice_.n, slice_.first);
    wait_for_oldest();
    float4 v = ring_[slot_][threadIdx.x];
    if (i >= slice_.n) v = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
    fetch(q + kQuadsAhead);
    return v;
  }

 private:
  // Into the slot of the one taken last.
  __device__ __forceinline__ void fetch(int q) {
    if (!slice_.quick) return;
    const int i = slice_.place(0, q);
    if (i < slice_.n) copy_four(&ring_[slot_][threadIdx.x], slice_.from + i);
    commit_copies();
    slot_ = slot_ + 1 == kQuadsAhead ? 0 : slot_ + 1;
  }
#ifdef __CUDA_ARCH__
  __device__ static void copy_four(float4* to, const float* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }
  __device__ static void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
  __device__ static void wait_for_oldest() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kQuadsAhead - 1) : "memory");
  }
#else
  __device__ static void copy_four(float4* to, const float* from) {
    *to = {from[0], from[1], from[2], from[3]};
  }
  __device__ static void commit_copies() {}
  __device__ static void wait_for_oldest() {}
#endif

  const StreamSlice& slice_;
  float4 (*ring_)[kStreamThreads];
  int slot_ = 0;
};

// One pass: the largest logit, the mass, and the draw among all tokens. A short loop: unrolled, its
// code did not fit the instruction cache.
struct DrawPass {
  float own = -kInfinity;
  float mass = 0, unit = 2 * kNothing;

  __device__ __forceinline__ void run(const StreamSlice& slice, StreamShared& m,
                                      const NoiseKey& noise, float inverse_t) {
    DrawList& list = m.s.draw;
    QuadStream stream(slice, m.ring);
    const int quads = (slice.n + kStreamThreads * 4 - 1) / (kStreamThreads * 4);
    float bound = kNothing;
#pragma unroll 1
    for (int q = 0; q < quads; ++q) {
      const float4 v = stream.take(q);
      const int32_t token = slice.first + slice.place(0, q);
      const float top = largest_of(largest_of(v.x, v.y), largest_of(v.z, v.w));
      own = largest_of(own, top);
      // The bound: what others found, or this thread's largest logit with the least noise.
      float sure = fmaxf(fmaf(top, inverse_t, kLeastNoise), kNothing);
      if (q == 0) {
        // The draws of the threads' first give a bound that few others reach.
        const int k = v.x == top ? 0 : v.y == top ? 1 : v.z == top ? 2 : 3;
        sure = fmaxf(sure, top * inverse_t - kNoiseMargin +
                               noise_estimate(noise_bits(noise, static_cast<uint32_t>(token + k))));
        const uint32_t key = __reduce_max_sync(0xFFFFFFFFu, key_of(sure));
        if (threadIdx.x % 32 == 0) atomicMax(&list.bound, key);
        __syncthreads();
      }
      const float found = float_of(*static_cast<volatile uint32_t*>(&list.bound));
      if (sure > found) atomicMax(&list.bound, key_of(sure));
      bound = fmaxf(bound, fmaxf(found, sure));
      const float before = unit;
      unit = bound - slack_of(bound);
      mass *= power_of_two((before - unit) * kLog2E);
      const float4 e = {power_of_two(fmaf(v.x, inverse_t, -unit) * kLog2E),
                        power_of_two(fmaf(v.y, inverse_t, -unit) * kLog2E),
                        power_of_two(fmaf(v.z, inverse_t, -unit) * kLog2E),
                        power_of_two(fmaf(v.w, inverse_t, -unit) * kLog2E)};
      mass += (e.x + e.y) + (e.z + e.w);
      const float open = bound - kMaxNoise;
      if (!(top * inverse_t >= open)) continue;
#pragma unroll kDrawUnroll
      for (int k = 0; k < 4; ++k) {
        const float x = one_of(v, k);
        if (!(x * inverse_t >= open)) continue;
        const uint32_t word = noise_word(noise, static_cast<uint32_t>(token + k));
        if (may_reach(word, one_of(e, k))) offer_token(list, x, word, token + k, inverse_t);
      }
    }
  }
};

}  // namespace hadal::cuda
