#pragma once

#include "compute/backends/cuda/sampler_select.cuh"

// top-k, top-p and the listed log-probabilities in one histogram: bins of 1/32 nat, then the bin
// that holds the boundary is gathered in one block and put in order there.
//
// Masses are sums per bin of e^(-r), r the distance into the bin, as multiples of 2^-30, times
// e^(-bin / 32) in f64: within 1e-8 of the whole. Where the boundary lies closer than that to a
// token's edge, or its bin has too many tokens, exact_select() decides.
namespace hadal::cuda {

struct SelectGoal {
  bool by_mass = false;
  uint32_t count = 0;     // tokens, or
  float share = 1;        // of the mass
  float temperature = 1;  // of the mass
};

// How far a logit lies below the top, in temperatures: x = high + low to some 2^-45.
struct Distance {
  float top, inverse, inverse_low;
  __device__ Distance(float top_logit, float temperature) : top(top_logit) {
    const double exact = 1.0 / static_cast<double>(temperature);
    inverse = static_cast<float>(exact);
    inverse_low = static_cast<float>(exact - static_cast<double>(inverse));
  }
  // Does not decrease while the logit decreases: bins are ranges of keys.
  __device__ __forceinline__ float high(float logit) const {
    return __fmul_rn(__fsub_rn(top, logit), inverse);
  }
  __device__ __forceinline__ float low(float logit, float high) const {
    const float d = __fsub_rn(top, logit), back = __fsub_rn(d, top);
    // What the subtraction lost, exactly.
    const float error = __fsub_rn(__fsub_rn(top, __fsub_rn(d, back)), __fadd_rn(logit, back));
    return fmaf(d, inverse, -high) + fmaf(error, inverse, d * inverse_low);
  }
};

inline constexpr float kBinsPerNat = 32;
__device__ __forceinline__ int quick_bin(float high) {
  return static_cast<int>(fminf(high * kBinsPerNat, static_cast<float>(kSampleBins - 1)));
}

// One pass over the slice. What lies in the last bin is only counted: 2^17 tokens there weigh less
// than 2e-9.
__device__ inline void quick_histogram(SampleBlock& block, SampleShared& s, const Cut& cut,
                                       const Distance& distance, bool by_mass) {
  clear_bins(s);
  uint32_t beyond = 0;
  for (int i = threadIdx.x; i < block.n; i += kSampleThreads) {
    const float v = block.values[i];
    if (!cut.keeps(v, block.first + i)) continue;
    const float x = distance.high(v);
    const int bin = quick_bin(x);
    if (bin == kSampleBins - 1) {
      ++beyond;
      continue;
    }
    atomicAdd(&s.bins.counts[bin], 1u);
    if (!by_mass) continue;
    const float r = (x - static_cast<float>(bin) / kBinsPerNat) + distance.low(v, x);
    // 1 - e^-r
    const float y = r * (1 - r / 2 * (1 - r / 3 * (1 - r / 4 * (1 - r / 5))));
    const auto mass = static_cast<uint32_t>((1 << 30) - __float2int_rn(y * 0x1p30f));
    const uint32_t old = atomicAdd(&s.bins.mass_low[bin], mass);
    if (old + mass < old) atomicAdd(&s.bins.mass_high[bin], 1u);
  }
  beyond = __reduce_add_sync(0xFFFFFFFFu, beyond);
  if (threadIdx.x % 32 == 0 && beyond > 0) atomicAdd(&s.bins.counts[kSampleBins - 1], beyond);
}

// Finds the bin of the boundary in the sum of all blocks' histograms.
__device__ inline void quick_find(SampleBlock& block, SampleShared& s, const SelectGoal& goal) {
  constexpr int kEach = kSampleBins / kSampleThreads;
  block.cluster.sync();
  double mine[kEach];
  uint32_t counts[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int bin = threadIdx.x * kEach + i;
    uint32_t n[kSampleBlocks];
    uint64_t mass[kSampleBlocks];
#pragma unroll
    for (int b = 0; b < kSampleBlocks; ++b) {
      const SampleShared* other = block.cluster.map_shared_rank(&s, b);
      n[b] = other->bins.counts[bin];
      mass[b] = goal.by_mass ? static_cast<uint64_t>(other->bins.mass_high[bin]) << 32 |
                                   other->bins.mass_low[bin]
                             : 0;
    }
    counts[i] = 0;
    uint64_t sum = 0;
#pragma unroll
    for (int b = 0; b < kSampleBlocks; ++b) counts[i] += n[b], sum += mass[b];
    mine[i] = goal.by_mass ? static_cast<double>(sum) * 0x1p-30 *
                                 exp(-static_cast<double>(bin) / static_cast<double>(kBinsPerNat))
                           : counts[i];
  }
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum += mine[i];
  double upto = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
    if (threadIdx.x % 32 >= step) upto += other;
  }
  if (threadIdx.x % 32 == 31) s.exchange.warp_sums[threadIdx.x / 32] = upto;
  if (threadIdx.x == 0) {
    s.bin = -1;
    s.n_listed = 0;
  }
  __syncthreads();
  double base = 0, total = 0;
  for (int w = 0; w < kSampleThreads / 32; ++w) {
    if (w == static_cast<int>(threadIdx.x) / 32) base = total;
    total += s.exchange.warp_sums[w];
  }
  const double wanted =
      goal.by_mass ? static_cast<double>(goal.share) * total : static_cast<double>(goal.count);
  double prefix = base + upto - sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (prefix < wanted && prefix + mine[i] >= wanted) {
      // Sums of neighbours are rounded each for itself: two may claim the boundary, then either is
      // within the margin of exact_select.
      s.bin = threadIdx.x * kEach + i;
      s.mass_before = prefix;
      s.inside = counts[i];
      s.wanted = wanted;
      s.total = total;
    }
    prefix += mine[i];
  }
  block.cluster.sync();  // nobody reads the histograms of this block any more
}

// The prefix that reaches the goal, of what `cut` keeps.
__device__ __noinline__ Cut select(SampleBlock& block, SampleShared& s, Cut cut, float top,
                                   const SelectGoal& goal) {
  const Distance distance(top, goal.temperature);
  const double inverse_t = 1.0 / static_cast<double>(goal.temperature);
  const auto exactly = [&] {
    const Measure measure = {goal.by_mass, static_cast<double>(top), inverse_t};
    return exact_select(block, s, cut, measure, top, 32 * goal.temperature, goal.count,
                        goal.by_mass ? goal.share : 1);
  };
  quick_histogram(block, s, cut, distance, goal.by_mass);
  quick_find(block, s, goal);
  const int bin = s.bin;
  if (bin < 0 && !goal.by_mass) return cut;  // fewer than asked for
  if (bin < 0 || bin == kSampleBins - 1 || s.inside > kListed) return exactly();
  SampleShared* list = block.cluster.map_shared_rank(&s, 0);
  for (int i = threadIdx.x; i < block.n; i += kSampleThreads) {
    const float v = block.values[i];
    if (!cut.keeps(v, block.first + i) || quick_bin(distance.high(v)) != bin) continue;
    const uint32_t at = atomicAdd(&list->n_listed, 1u);
    if (at < kListed) list->listed[at] = {v, block.first + i, v};
  }
  block.cluster.sync();
  if (block.rank() == 0) {
    const int n = static_cast<int>(s.n_listed), me = threadIdx.x;
    if (me == 0) s.cut = {0, INT_MAX, 0};
    if (me < n) {
      const Contender mine = s.listed[me];
      int place = 0;
      for (int i = 0; i < n; ++i) place += wins(s.listed[i], mine) ? 1 : 0;
      const double w =
          goal.by_mass
              ? exp((static_cast<double>(mine.logit) - static_cast<double>(top)) * inverse_t)
              : 1;
      s.bins.ordered[place] = mine;
      s.bins.weights[place] = w;
    }
    __syncthreads();
    // Prefixes in the order of the tokens, by a tree of fixed shape.
    double upto = me < n ? s.bins.weights[me] : 0;
    const double mine = upto;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const double other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
      if (me % 32 >= step) upto += other;
    }
    if (me % 32 == 31) s.exchange.warp_sums[me / 32] = upto;
    __syncthreads();
    double before = s.mass_before;
    for (int w = 0; w < me / 32; ++w) before += s.exchange.warp_sums[w];
    const double after = before + upto;
    before = after - mine;
    const double margin = goal.by_mass ? 1e-8 * s.total : 0;
    if (me < n && before < s.wanted - margin && after >= s.wanted + margin)
      s.cut = s.bins.ordered[me];
    __syncthreads();
  }
  const Contender found = block.exchange(s.exchange.contenders, s.cut)[0];
  if (found.token == INT_MAX) return exactly();
  return {key_of(found.logit), found.token};
}

}  // namespace hadal::cuda
