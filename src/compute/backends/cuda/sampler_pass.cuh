#pragma once

#include "compute/backends/cuda/sampler_walk.cuh"

// The draw among all tokens of a row in one pass.
namespace hadal::cuda {

// The bound of a draw by a value of logit / T + noise that a kept token surely has: in units of
// log 2, and a little less for the errors of what is compared with it.
__device__ __forceinline__ float bound_of(float value) {
  return (value - kNoiseMargin - fabsf(value) * 1e-6f) * kLog2E;
}
// For all blocks of the row.
__device__ __forceinline__ void raise_bound(StreamDraw& draw, uint32_t key) {
  const auto cluster = cooperative_groups::this_cluster();
#pragma unroll
  for (int b = 0; b < kSampleBlocks; ++b) atomicMax(cluster.map_shared_rank(&draw.bound, b), key);
}
__device__ __forceinline__ bool may_reach(float estimate, float bound) {
  return (estimate + kNoiseMargin) * kLog2E >= bound;
}
// Lists those of four tokens that may win, or draws them at once: two logarithms in f64, for which
// other warps would wait.
template <bool kAtOnce>
__device__ __noinline__ void draw_four(StreamDraw& draw, float4 v, uint4 words, int32_t token,
                                       float inverse_t) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
  for (int k = 0; k < 4; ++k) {
    const float scaled = __fmul_rn(v.x, inverse_t);
    const uint32_t bits = words.x >> 8;
    const float estimate = scaled + noise_estimate(bits);
    const float bound = float_of(*static_cast<volatile uint32_t*>(&draw.bound));
    if (may_reach(estimate, bound) && !isinf(v.x)) {
      const float sure = bound_of(estimate - kNoiseMargin);
      if (sure > bound) raise_bound(draw, key_of(sure));
      if (kAtOnce) {
        const uint64_t mine = packed(key_of(__fadd_rn(scaled, noise_value(bits))), token + k);
        atomicMax(&draw.best[warp], static_cast<unsigned long long>(mine));
      } else {
        const uint32_t at = atomicAdd(&draw.n[warp], 1u);
        if (at < StreamDraw::kListed) draw.listed[warp][at] = {scaled, bits, token + k};
      }
    }
    v = {v.y, v.z, v.w, v.x};
    words = {words.y, words.z, words.w, words.x};
  }
}
// What this lane has of the best of its warp's tokens.
__device__ inline uint64_t best_at_once(const StreamDraw& draw) {
  __syncwarp();
  return threadIdx.x % 32 == 0 ? draw.best[threadIdx.x / 32] : 0;
}
__device__ inline uint64_t best_listed(const StreamDraw& draw) {
  static_assert(StreamDraw::kListed == 32);
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncwarp();
  const uint32_t n = draw.n[warp];
  if (n > StreamDraw::kListed) return kTooMany;
  if (lane >= n) return 0;
  const ListedToken& t = draw.listed[warp][lane];
  if (!may_reach(t.scaled + noise_estimate(t.bits), float_of(draw.bound))) return 0;
  return packed(key_of(__fadd_rn(t.scaled, noise_value(t.bits))), t.token);
}

// Tokens of a row offered to its draw, four neighbours at a time: their noise costs 37
// instructions, and logarithms are for the few that may win.
template <bool kAtOnce>
class Offers {
 public:
  __device__ Offers(StreamDraw& draw, const NoiseKey& key, float inverse_t)
      : draw_(draw),
        bound_at_(shared_address(&draw.bound)),
        noise_(key),
        inverse_t_(inverse_t),
        k_(kLog2E * inverse_t) {}
  // The bound by the draws of each lane's likeliest of four: few tokens of the row reach it.
  __device__ uint32_t first_bound(const float4& v, int32_t token) const {
    const float top = largest_of(largest_of(v.x, v.y), largest_of(v.z, v.w));
    const uint4 words = noise_.of(static_cast<uint32_t>(token) / 4);
    const uint32_t word = v.x == top   ? words.x
                          : v.y == top ? words.y
                          : v.z == top ? words.z
                                       : words.w;
    const float sure = bound_of(top * inverse_t_ + noise_estimate(word >> 8) - kNoiseMargin);
    return __reduce_max_sync(0xFFFFFFFFu, key_of(fmaxf(sure, kNothing)));
  }
  // `top` is the largest of four, -inf is none; the first one's number is a multiple of four.
  __device__ __forceinline__ void take(const float4& v, float top, int32_t token) const {
    const float distance = fmaf(top, k_, -float_of(changing_word(bound_at_)));
    if (!(distance >= kFarthest)) return;
    const uint4 words = noise_.of(static_cast<uint32_t>(token) / 4);
    const uint32_t highest = max(max(words.x, words.y), max(words.z, words.w));
    // A token reaches the bound if u of its noise is so close to 1.
    const float upper = __uint_as_float((highest >> 9) + 0x3F800000u);  // 1 + u, down to 23 bits
    if (upper + power_of_two(distance) >= 2.0f - 0x1p-20f)
      draw_four<kAtOnce>(draw_, v, words, token, inverse_t_);
  }

 private:
  static constexpr float kFarthest = -26;  // no noise reaches over 25 log 2

  StreamDraw& draw_;
  const uint32_t bound_at_;
  const NoiseWords noise_;
  const float inverse_t_, k_;  // k_: log2(e) / T
};

// What a thread has after a pass over its slice: the largest logit, and the mass if it is asked
// for.
struct Passed {
  float own = -kInfinity;
  float mass = 0;  // the sum of e^((logit - unit()) / T)
  __device__ __forceinline__ float unit() const { return fmaxf(own, kNothing); }
};

// One pass with the draw among all tokens, which are listed. The block has arrived at its cluster's
// barrier, and waits here for the others. A function of its own for the sake of its registers.
__device__ __noinline__ Passed draw_among_all(StreamSlice slice, StreamShared& m, NoiseKey key,
                                              float inverse_t, bool weighs) {
  Walk walk(slice, m.s.ring, (slice.n + 3) / 4, AllPlaces{});
  const Offers<false> offers(m.draw, of_warp(key), inverse_t);
  const float k = kLog2E * inverse_t;
  Passed p;
  const uint32_t bound = offers.first_bound(walk.see_first(), walk.first_token());
  cooperative_groups::this_cluster().barrier_wait();
  if (threadIdx.x % 32 == 0) raise_bound(m.draw, bound);
  walk.go([&](const float4& v, int32_t token) {
    const float top = largest_of(largest_of(v.x, v.y), largest_of(v.z, v.w));
    const float before = p.unit();
    p.own = largest_of(p.own, top);
    if (weighs) {
      const float unit = p.unit();
      p.mass *= power_of_two((before - unit) * k);
      p.mass += (power_of_two((v.x - unit) * k) + power_of_two((v.y - unit) * k)) +
                (power_of_two((v.z - unit) * k) + power_of_two((v.w - unit) * k));
    }
    offers.take(v, top, token);
  });
  return p;
}

}  // namespace hadal::cuda
