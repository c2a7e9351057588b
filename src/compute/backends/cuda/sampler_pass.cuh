#pragma once

#include "compute/backends/cuda/sampler_copy.cuh"
#include "compute/backends/cuda/sampler_slice.cuh"

// The draw among all tokens of a row in one pass.
namespace hadal::cuda {

// A bound that a kept token surely reaches, for all blocks of the row.
__device__ __forceinline__ void raise_bound(DrawList& list, uint32_t key) {
  const auto cluster = cooperative_groups::this_cluster();
#pragma unroll
  for (int b = 0; b < kSampleBlocks; ++b) atomicMax(cluster.map_shared_rank(&list.bound, b), key);
}
// Lists those of four tokens that may win.
__device__ __noinline__ void offer_four(DrawList& list, float4 v, uint4 words, int32_t token,
                                        float inverse_t) {
#pragma unroll 1
  for (int k = 0; k < 4; ++k) {
    const float scaled = __fmul_rn(v.x, inverse_t);
    const uint32_t bits = words.x >> 8;
    const float estimate = scaled + noise_estimate(bits);
    const float bound = float_of(*static_cast<volatile uint32_t*>(&list.bound));
    if (estimate + kNoiseMargin >= bound && !isinf(v.x)) {
      if (estimate - kNoiseMargin > bound) raise_bound(list, key_of(estimate - kNoiseMargin));
      const uint32_t at = atomicAdd(&list.n, 1u);
      if (at < DrawList::kSize) {
        list.entries[at] = {scaled, token + k, v.x};
        list.bits[at] = bits;
      } else {
        const float value = __fadd_rn(scaled, noise_value(bits));
        atomicMax(&list.best, static_cast<unsigned long long>(packed(key_of(value), token + k)));
      }
    }
    v = {v.y, v.z, v.w, v.x};
    words = {words.y, words.z, words.w, words.x};
  }
}

// Tokens of a row offered to its draw, four neighbours at a time: their noise costs 37
// instructions, logarithms and the list are for the few that may win.
class Offers {
 public:
  __device__ Offers(DrawList& list, const NoiseKey& key, float inverse_t)
      : list_(list),
        bound_at_(shared_address(&list.bound)),
        noise_(key),
        inverse_t_(inverse_t),
        k_(kLog2E * inverse_t) {}
  // By all threads: the draws of each one's likeliest give a bound that few tokens reach.
  __device__ void start(const float4& v, int32_t token) {
    const float top = largest_of(largest_of(v.x, v.y), largest_of(v.z, v.w));
    const uint4 words = noise_.of(static_cast<uint32_t>(token) / 4);
    const uint32_t word = v.x == top   ? words.x
                          : v.y == top ? words.y
                          : v.z == top ? words.z
                                       : words.w;
    const float sure = top * inverse_t_ + noise_estimate(word >> 8) - kNoiseMargin;
    const uint32_t highest = __reduce_max_sync(0xFFFFFFFFu, key_of(fmaxf(sure, kNothing)));
    if (threadIdx.x % 32 == 0) atomicMax(&list_.bound, highest);
    __syncthreads();
    if (threadIdx.x == 0) raise_bound(list_, *static_cast<volatile uint32_t*>(&list_.bound));
  }
  // `top` is the largest of four, -inf is none; the first one's number is a multiple of four.
  __device__ __forceinline__ void take(const float4& v, float top, int32_t token) {
    refresh();
    const float distance = fmaf(top, k_, -unit_);
    if (!(distance >= kFarthest)) return;
    const uint4 words = noise_.of(static_cast<uint32_t>(token) / 4);
    const uint32_t highest = max(max(words.x, words.y), max(words.z, words.w));
    if (may_reach(highest, power_of_two(distance))) offer_four(list_, v, words, token, inverse_t_);
  }

 private:
  static constexpr float kFarthest = -26;  // no noise reaches over 25 log 2

  // Takes over what other threads found, of all blocks.
  __device__ __forceinline__ void refresh() {
    const uint32_t found = changing_word(bound_at_);
    if (found == bound_) return;
    bound_ = found;
    const float value = float_of(found);
    unit_ = (value - kNoiseMargin - fabsf(value) * 1e-6f) * kLog2E;
  }
  // Whether a token may reach the bound, given 2^distance and its word of noise: that u of its
  // noise is so close to 1.
  __device__ __forceinline__ static bool may_reach(uint32_t word, float e) {
    const float upper = __uint_as_float((word >> 9) + 0x3F800000u);  // 1 + u, down to 23 bits
    return upper + e >= 2.0f - 0x1p-20f;
  }
  DrawList& list_;
  const uint32_t bound_at_;
  const NoiseWords noise_;
  const float inverse_t_, k_;  // k_: log2(e) / T
  uint32_t bound_ = ~0u;
  float unit_ = 0;  // log2(e) times a little less than the bound
};

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

// A thread's fours of its slice one after the other, the next ones on their way to shared memory.
class QuadStream {
 public:
  __device__ QuadStream(const StreamSlice& slice, float4 (*ring)[kStreamThreads])
      : slice_(slice),
        next_(slice.place(0, 0)),
        slot_(shared_address(&ring[0][threadIdx.x])),
        end_(slot_ + kRing) {
    asm volatile("" : "+r"(slot_), "+r"(end_));  // kept
    for (int q = 0; q < kQuadsAhead; ++q) fetch();
  }
  // The one that take() gives next, or none; `i` is its place.
  __device__ __forceinline__ float4 see(int i) {
    if (i >= slice_.n) return {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
    if (!slice_.quick)
      return four_logits(slice_.row, slice_.a, slice_.from, i, slice_.n, slice_.first);
    copy16_wait<kQuadsAhead - 1>();
    const uint4 v = shared_load4(slot_);
    return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
  }
  __device__ __forceinline__ float4 take(int i) {
    const float4 v = see(i);
    fetch();
    return v;
  }

 private:
  static constexpr uint32_t kSlot = kStreamThreads * sizeof(float4), kRing = kQuadsAhead * kSlot;

  // Into the slot of the one taken last.
  __device__ __forceinline__ void fetch() {
    if (!slice_.quick) return;
    if (next_ < slice_.n) copy16(slot_, slice_.from + next_);
    copy16_commit();
    next_ += kStreamThreads * 4;
    slot_ += kSlot;
    if (slot_ == end_) slot_ -= kRing;
  }

  const StreamSlice& slice_;
  int next_;
  uint32_t slot_, end_;
};

// One pass: the largest logit, the mass if it is asked for, and the draw among all tokens.
struct DrawPass {
  float own = -kInfinity;
  float mass = 0;  // the sum of e^((logit - unit()) / T)

  __device__ __forceinline__ float unit() const { return fmaxf(own, kNothing); }
  __device__ __forceinline__ void run(QuadStream& stream, const StreamSlice& slice, Offers& offers,
                                      float inverse_t, bool weighs) {
    const float k = kLog2E * inverse_t;
    const int begin = slice.place(0, 0);
    offers.start(stream.see(begin), slice.first + begin);
#pragma unroll 1
    for (int i = begin; i < slice.n; i += kStreamThreads * 4) {
      const float4 v = stream.take(i);
      const float top = largest_of(largest_of(v.x, v.y), largest_of(v.z, v.w));
      const float before = unit();
      own = largest_of(own, top);
      if (weighs) {
        mass *= power_of_two((before - unit()) * k);
        mass += (power_of_two((v.x - unit()) * k) + power_of_two((v.y - unit()) * k)) +
                (power_of_two((v.z - unit()) * k) + power_of_two((v.w - unit()) * k));
      }
      offers.take(v, top, slice.first + i);
    }
  }
};

}  // namespace hadal::cuda
