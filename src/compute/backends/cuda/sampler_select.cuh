#pragma once

#include "compute/backends/cuda/sampler_block.cuh"

// Finds where a prefix of the tokens, best first, reaches a target, for any contents: histograms
// over ever narrower ranges of keys. Counts and masses are integers, so that nothing depends on the
// order of the additions. sampler_quick.cuh decides nearly all rows before this is needed.
namespace hadal::cuda {

// What a token weighs: 1, or e^((logit - top) / T) as a multiple of 2^-46. Sums of 2^17 such
// numbers fit 64 bits; a host that adds in f64 decides the same unless the boundary lies within
// 1e-11 of the mass.
struct Measure {
  bool is_mass = false;
  double top = 0, inverse_t = 1;
  __device__ __forceinline__ uint64_t operator()(float logit) const {
    if (!is_mass) return 1;
    const double w = exp((static_cast<double>(logit) - top) * inverse_t);
    return static_cast<uint64_t>(w * 0x1p46 + 0.5);
  }
};

__device__ __forceinline__ void add_to_bin(SampleShared& s, int bin, const Measure& measure,
                                           float logit) {
  atomicAdd(&s.bins.counts[bin], 1u);
  if (!measure.is_mass) return;
  const uint64_t mass = measure(logit);
  const auto low = static_cast<uint32_t>(mass);
  const uint32_t old = atomicAdd(&s.bins.mass_low[bin], low);
  const uint32_t high = static_cast<uint32_t>(mass >> 32) + (old + low < old ? 1u : 0u);
  if (high != 0) atomicAdd(&s.bins.mass_high[bin], high);
}

__device__ inline void clear_bins(SampleShared& s) {
  for (int bin = threadIdx.x; bin < kSampleBins; bin += static_cast<int>(blockDim.x))
    s.bins.counts[bin] = s.bins.mass_low[bin] = s.bins.mass_high[bin] = 0;
  __syncthreads();
}

// Adds the blocks' histograms and finds the bin where `before` + prefix reaches the target; with a
// `share` the target is that part of the total. Every block finds the same. False if none does.
__device__ inline bool find_bin(SampleBlock& block, SampleShared& s, const Measure& measure,
                                uint64_t before, uint64_t& target, float share) {
  constexpr int kMost = kSampleBins / kStreamThreads;
  const int each = kSampleBins / block.threads();
  block.cluster.sync();
  uint64_t mine[kMost] = {};
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (i >= each) break;
    const int bin = threadIdx.x * each + i;
    for (int b = 0; b < kSampleBlocks; ++b) {
      const SampleShared* other = block.cluster.map_shared_rank(&s, b);
      mine[i] += measure.is_mass ? static_cast<uint64_t>(other->bins.mass_high[bin]) << 32 |
                                       other->bins.mass_low[bin]
                                 : other->bins.counts[bin];
    }
  }
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kMost; ++i) sum += mine[i];
  uint64_t upto = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
    if (threadIdx.x % 32 >= step) upto += other;
  }
  if (threadIdx.x % 32 == 31) s.warp_mass[threadIdx.x / 32] = upto;
  if (threadIdx.x == 0) s.bin = -1;
  __syncthreads();
  uint64_t base = 0, total = 0;
  for (int w = 0; w < block.n_warps(); ++w) {
    if (w == static_cast<int>(threadIdx.x) / 32) base = total;
    total += s.warp_mass[w];
  }
  if (share < 1) {
    const double wanted = static_cast<double>(share) * static_cast<double>(total);
    target = max(static_cast<uint64_t>(1), static_cast<uint64_t>(ceil(wanted)));
  }
  uint64_t prefix = before + base + upto - sum;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (prefix < target && prefix + mine[i] >= target) {
      s.bin = threadIdx.x * each + i;
      s.before = prefix;
    }
    prefix += mine[i];
  }
  block.cluster.sync();  // nobody reads the histograms of this block any more
  return s.bin >= 0;
}

// The `wanted`-th token (from 1) in order of ids among those whose key is `key`.
__device__ inline int32_t nth_equal(SampleBlock& block, SampleShared& s, uint32_t key,
                                    uint64_t wanted) {
  uint32_t mine = 0;
  for (int i = threadIdx.x; i < block.n; i += block.threads())
    mine += key_of(block.values[i]) == key ? 1u : 0u;
  mine = __reduce_add_sync(0xFFFFFFFFu, mine);
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.exchange.warp_words[threadIdx.x / 32] = mine;
  __syncthreads();
  uint32_t here = 0;
  for (int w = 0; w < block.n_warps(); ++w) here += s.exchange.warp_words[w];
  const uint32_t* all = block.exchange(s.exchange.words, here);
  uint64_t before = 0;
  for (int b = 0; b < block.rank(); ++b) before += all[b];
  if (threadIdx.x == 0) s.found = -1;
  __syncthreads();
  if (before < wanted && before + here >= wanted) {
    for (int first = 0; first < block.n && before < wanted; first += block.threads()) {
      const int i = first + threadIdx.x;
      const bool equal = i < block.n && key_of(block.values[i]) == key;
      const uint32_t votes = __ballot_sync(0xFFFFFFFFu, equal);
      __syncthreads();
      if (threadIdx.x % 32 == 0) s.exchange.warp_words[threadIdx.x / 32] = __popc(votes);
      __syncthreads();
      uint64_t at = before;
      uint32_t turn = 0;
      for (int w = 0; w < block.n_warps(); ++w) {
        if (w < static_cast<int>(threadIdx.x) / 32) at += s.exchange.warp_words[w];
        turn += s.exchange.warp_words[w];
      }
      at += __popc(votes & ((1u << threadIdx.x % 32) - 1u));
      if (equal && at + 1 == wanted) s.found = block.first + i;
      before += turn;
    }
  }
  __syncthreads();
  const uint32_t* found = block.exchange(s.exchange.words, static_cast<uint32_t>(s.found));
  for (int b = 0; b < kSampleBlocks; ++b)
    if (static_cast<int32_t>(found[b]) >= 0) return static_cast<int32_t>(found[b]);
  return INT_MAX;
}

// The smallest prefix of what `cut` keeps that reaches `target`, or `share` of all of it. `width`
// is the span of logits over which the first histogram tells tokens apart.
__device__ __noinline__ Cut exact_select(SampleBlock& block, SampleShared& s, Cut cut,
                                         const Measure& measure, float top, float width,
                                         uint64_t target, float share) {
  const float scale = static_cast<float>(kSampleBins) / width;
  // Not decreasing while the logit decreases: bins are ranges of keys.
  const auto first_bin = [&](float logit) {
    return static_cast<int>(fminf((top - logit) * scale, static_cast<float>(kSampleBins - 1)));
  };
  clear_bins(s);
  for (int i = threadIdx.x; i < block.n; i += block.threads()) {
    const float v = block.values[i];
    if (cut.keeps(v, block.first + i)) add_to_bin(s, first_bin(v), measure, v);
  }
  if (!find_bin(block, s, measure, 0, target, share)) return cut;
  uint64_t before = s.before;
  const int bin = s.bin;
  // The keys of that bin.
  uint32_t high = 0, low = ~0u;
  for (int i = threadIdx.x; i < block.n; i += block.threads()) {
    const float v = block.values[i];
    if (!cut.keeps(v, block.first + i) || first_bin(v) != bin) continue;
    high = max(high, key_of(v));
    low = min(low, key_of(v));
  }
  const auto largest = [&](uint32_t x) {
    x = __reduce_max_sync(0xFFFFFFFFu, x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) s.exchange.warp_words[threadIdx.x / 32] = x;
    __syncthreads();
    for (int w = 0; w < block.n_warps(); ++w) x = max(x, s.exchange.warp_words[w]);
    const uint32_t* all = block.exchange(s.exchange.words, x);
    for (int b = 0; b < kSampleBlocks; ++b) x = max(x, all[b]);
    return x;
  };
  high = largest(high);
  low = ~largest(~low);
  while (high != low) {
    const int bits = 32 - __clz(high - low);
    const int shift = max(0, bits - 10);
    static_assert(kSampleBins == 1 << 10);
    clear_bins(s);
    for (int i = threadIdx.x; i < block.n; i += block.threads()) {
      const float v = block.values[i];
      const uint32_t key = key_of(v);
      if (key <= high && key >= low && cut.keeps(v, block.first + i))
        add_to_bin(s, static_cast<int>((high - key) >> shift), measure, v);
    }
    float all = 1;
    if (!find_bin(block, s, measure, before, target, all)) return cut;
    before = s.before;
    const uint32_t upper = high - (static_cast<uint32_t>(s.bin) << shift);
    const uint32_t span = (1u << shift) - 1;
    low = upper - low <= span ? low : upper - span;
    high = upper;
  }
  // One key: its tokens weigh the same.
  const uint32_t key = high;
  const uint32_t u = (key >> 31) != 0 ? key & 0x7FFFFFFFu : ~key;
  const uint64_t each = measure(__uint_as_float(u));
  const uint64_t wanted = (target - before + each - 1) / each;
  Cut out = {key, INT_MAX};
  out.token = nth_equal(block, s, key, wanted);
  if (key == cut.key) out.token = min(out.token, cut.token);
  return out;
}

}  // namespace hadal::cuda
