#pragma once

#include "compute/backends/cuda/sampler_truncate.cuh"

// Rows whose logits are read past and not kept. Truncation needs no order of the vocabulary:
//
//   top-k   of the threads' largest logits the k-th is a lower bound of the k-th of all; what
//           reaches it, hardly more than k, is listed in one block and put in order there;
//   top-p   the draw is made among all tokens first; it stands if the tokens better than the drawn
//   min-p   one weigh less than p. If not, nothing worse than it is kept, and the draw is repeated
//           among the better ones.
//
// A thread goes back only to tokens that can matter: it knows the largest of its own.
namespace hadal::cuda {

// The thread's largest logit and the place of the four that have it first.
template <bool kQuick>
__device__ __forceinline__ void take_largest(const StreamSlice& slice, float& own, int& at) {
  constexpr int kBatch = 2 * kQuadBatch;
#pragma unroll 1
  for (int begin = 0; begin < slice.n; begin += kStreamThreads * kBatch * 4) {
    float v[kBatch][4];
    slice.load<kQuick>(begin, v);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const float four = largest_of(largest_of(v[j][0], v[j][1]), largest_of(v[j][2], v[j][3]));
      if (!(four <= own)) at = slice.place(begin, j);
      own = largest_of(own, four);
    }
  }
}

__device__ inline void stream_row(SampleBlock& block, StreamShared& m, const SampleTerms& row,
                                  const SampleArrays& a) {
  const float* from = a.logits + row.row * a.stride + block.first;
  const bool wide = block.n % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  const StreamSlice slice = {&a, &row, from, block.n, block.first, wide && is_plain(row)};
  const bool draws = row.temperature > 0;
  const bool few = draws && row.top_k > 0 && row.top_k < a.n_vocab;
  const bool by_min_p = draws && !few && row.min_p > 0 && !(row.top_p < 1);
  if (threadIdx.x == 0) m.draw.bound = key_of(kNothing);
  if (threadIdx.x % 32 == 0) m.draw.n[threadIdx.x / 32] = 0;
  // When all have arrived, all blocks run and their memory may be written. Before anything is
  // loaded, for which an arrival would wait.
  block.cluster.barrier_arrive();
  StreamRow work = {block,
                    m,
                    slice,
                    row,
                    of_warp({row.seed, row.position, row.stream}),
                    draws ? __fdiv_rn(1.0f, row.temperature) : 1.0f};
  float own = -kInfinity, top;
  uint64_t best = 0;
  bool decided = true;
  if (draws && !few && !by_min_p) {
    const Passed passed = draw_among_all(slice, m, work.noise, work.inverse_t, row.top_p < 1);
    own = passed.own;
    const Told all = work.told(best_listed(m.draw), own, passed.mass, passed.unit());
    best = all.best;
    top = all.top;
    if (best == kTooMany && !isinf(top) && !isnan(top))
      best = work.draw(own, top, -kInfinity, false, [](float, int32_t) { return true; }).best;
    if (row.top_p < 1 && best != 0 && !isinf(top) && !isnan(top)) {
      best = work.truncate(best, own, all);
      decided = best != 0;
    }
  } else {
    int at = 0;
    if (slice.quick)
      take_largest<true>(slice, own, at);
    else
      take_largest<false>(slice, own, at);
    block.cluster.barrier_wait();
    if (few) {
      best = work.draw_of_few(own, row.top_k, top, decided);
    } else {
      float v[1][4];
      if (slice.quick)
        slice.load<true>(at - static_cast<int>(threadIdx.x) * 4, v);
      else
        slice.load<false>(at - static_cast<int>(threadIdx.x) * 4, v);
      const int k = v[0][0] == own ? 0 : v[0][1] == own ? 1 : v[0][2] == own ? 2 : 3;
      const Told all = work.told(packed(key_of(own), slice.first + at + k), own, 0, 0);
      best = all.best;
      top = all.top;
      if (by_min_p && !isinf(top) && !isnan(top))
        best = work.draw(own, top, -kInfinity, false, [](float, int32_t) { return true; }).best;
    }
  }
  if (!decided && !isinf(top) && !isnan(top)) best = work.draw_exactly(own, top);
  if (block.rank() != 0 || threadIdx.x != 0) return;
  ops::SampledToken& out = a.out[row.row];
  out.state = isnan(top)                ? ops::SampledToken::State::kNotANumber
              : isinf(top) || best == 0 ? ops::SampledToken::State::kNoToken
                                        : ops::SampledToken::State::kOk;
  out.token = out.state == ops::SampledToken::State::kOk ? token_of(best) : -1;
  out.logprob = 0;
  out.n_top = 0;
}

}  // namespace hadal::cuda
