#pragma once

#include "compute/backends/cuda/sampler_copy.cuh"
#include "compute/backends/cuda/sampler_slice.cuh"

// How a block's threads go through its slice.
namespace hadal::cuda {

// Where in a slice the fours of a walk begin, by their number: one after the other.
struct AllPlaces {
  static constexpr bool kExist = true;  // each is a place of the slice
  __device__ __forceinline__ int operator()(int x) const { return x * 4; }
};
// Those of some threads of a walk through all of them, 1 << shift each.
struct HotPlaces {
  static constexpr bool kExist = false;
  const uint16_t* hot;
  int shift;
  __device__ __forceinline__ int operator()(int x) const {
    return ((x & ((1 << shift) - 1)) * kStreamThreads + hot[x >> shift]) * 4;
  }
};

// A thread's fours one after the other, the next ones on their way to shared memory. The threads of
// the block share [0, end); place(x) is where in the slice the x-th four begins, or its end.
template <class Place>
class Walk {
 public:
  __device__ Walk(const StreamSlice& slice, float4 (*ring)[kStreamThreads], int end, Place place)
      : slice_(slice),
        place_(place),
        end_(end),
        next_(static_cast<int>(threadIdx.x)),
        slot_(shared_address(&ring[0][threadIdx.x])),
        ring_end_(slot_ + kRing) {
    asm volatile("" : "+r"(slot_), "+r"(ring_end_));  // kept
#pragma unroll 1
    for (int q = 0; q < kQuadsAhead; ++q) fetch();
  }
  // The four that go() begins with; -inf is none.
  __device__ __forceinline__ float4 see_first() {
    const int i = first_place();
    return i < slice_.n ? see(i) : float4{-kInfinity, -kInfinity, -kInfinity, -kInfinity};
  }
  __device__ __forceinline__ int32_t first_token() const { return slice_.first + first_place(); }
  // f(four logits, the first one's token) of each.
  template <class F>
  __device__ __forceinline__ void go(F f) {
#pragma unroll 1
    for (int x = static_cast<int>(threadIdx.x); x < end_; x += kStreamThreads) {
      const int i = place_(x);
      const bool exists = Place::kExist || i < slice_.n;
      float4 v;
      if (exists) v = see(i);
      fetch();
      if (exists) f(v, slice_.first + i);
    }
  }

 private:
  static constexpr uint32_t kSlot = kStreamThreads * sizeof(float4), kRing = kQuadsAhead * kSlot;

  __device__ int first_place() const {
    const auto me = static_cast<int>(threadIdx.x);
    return me < end_ ? place_(me) : slice_.n;
  }
  // The oldest, which is of place `i`.
  __device__ __forceinline__ float4 see(int i) {
    if (!slice_.quick)
      return four_logits(slice_.row, slice_.a, slice_.from, i, slice_.n, slice_.first);
    copy16_wait<kQuadsAhead - 1>();
    const uint4 v = shared_load4(slot_);
    return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
  }
  // Into the slot that was seen last.
  __device__ __forceinline__ void fetch() {
    if (!slice_.quick) return;
    if (next_ < end_) {
      const int i = place_(next_);
      if (Place::kExist || i < slice_.n) copy16(slot_, slice_.from + i);
    }
    copy16_commit();
    next_ += kStreamThreads;
    slot_ += kSlot;
    if (slot_ == ring_end_) slot_ -= kRing;
  }

  const StreamSlice& slice_;
  const Place place_;
  const int end_;
  int next_;
  uint32_t slot_;
  uint32_t ring_end_;
};

// Through the tokens of those threads of a walk through all whose largest logit, `own`, is `least`
// or more. Barriers inside.
template <class F>
__device__ __forceinline__ void walk_hot(const StreamSlice& slice, StreamShared& m, float own,
                                         float least, F f) {
  const auto me = static_cast<int>(threadIdx.x);
  const int fours = (slice.n + kStreamThreads * 4 - 1) / (kStreamThreads * 4);  // of a thread
  const int shift = 32 - __clz(max(fours - 1, 0));
  if (me == 0) m.n_hot = 0;
  __syncthreads();
  if (own >= least) m.hot[atomicAdd(&m.n_hot, 1u)] = static_cast<uint16_t>(me);
  __syncthreads();
  Walk walk(slice, m.s.ring, static_cast<int>(m.n_hot) << shift, HotPlaces{m.hot, shift});
  walk.go(f);
}

}  // namespace hadal::cuda
