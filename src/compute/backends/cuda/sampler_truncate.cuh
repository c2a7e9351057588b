#pragma once

#include "compute/backends/cuda/sampler_pass.cuh"

// Draws among what top-k, top-p and min-p leave of a row.
namespace hadal::cuda {

// A row on its way to its token.
struct StreamRow {
  SampleBlock& block;
  StreamShared& m;
  const StreamSlice& slice;
  const SampleTerms& row;
  const NoiseKey noise;
  float inverse_t;

  __device__ Told told(uint64_t best, float top, float mass, float unit) {
    return tell(block, m, {best, top, mass}, unit, kLog2E * inverse_t);
  }
  __device__ bool reaches_min_p(float logit, float top) const {
    if (!(row.min_p > 0)) return true;
    const double inverse = 1.0 / static_cast<double>(row.temperature);
    return !(exp((static_cast<double>(logit) - static_cast<double>(top)) * inverse) <
             static_cast<double>(row.min_p));
  }
  // What of four logits, all that `kept` leaves, min-p leaves too.
  __device__ __noinline__ static float4 above_min_p(float4 v, float top, float temperature,
                                                    float min_p) {
    const double inverse = 1.0 / static_cast<double>(temperature);
    const auto only = [&](float x) {
      const double w = exp((static_cast<double>(x) - static_cast<double>(top)) * inverse);
      return w < static_cast<double>(min_p) ? -kInfinity : x;
    };
    return {only(v.x), only(v.y), only(v.z), only(v.w)};
  }
  // No logit below it has min_p of the top's weight.
  __device__ float least_of_min_p(float top) const {
    if (!(row.min_p > 0)) return -kInfinity;
    return top + row.temperature * (__logf(row.min_p) - 1e-3f) - fabsf(top) * 1e-6f;
  }
  // The draw among the tokens that `kept` and min-p leave, the likeliest being one of them, and the
  // mass of those that `kept` leaves if it is asked for; all are at least `least`.
  template <class Kept>
  __device__ Told draw(float own, float top, float least, bool weighs, Kept kept) {
    if (threadIdx.x == 0) m.draw.bound = key_of(bound_of(fmaf(top, inverse_t, kLeastNoise)));
    if (threadIdx.x % 32 == 0) m.draw.best[threadIdx.x / 32] = 0;
    if (!weighs) least = fmaxf(least, least_of_min_p(top));
    const Offers<true> offers(m.draw, noise, inverse_t);
    float mass = 0;
    walk_hot(slice, m, own, least, [&](float4 v, int32_t token) {
      v.x = v.x >= least && kept(v.x, token) ? v.x : -kInfinity;
      v.y = v.y >= least && kept(v.y, token + 1) ? v.y : -kInfinity;
      v.z = v.z >= least && kept(v.z, token + 2) ? v.z : -kInfinity;
      v.w = v.w >= least && kept(v.w, token + 3) ? v.w : -kInfinity;
      if (weighs) {
        const float k = kLog2E * inverse_t;
        mass += (power_of_two((v.x - top) * k) + power_of_two((v.y - top) * k)) +
                (power_of_two((v.z - top) * k) + power_of_two((v.w - top) * k));
      }
      if (row.min_p > 0) v = above_min_p(v, top, row.temperature, row.min_p);
      offers.take(v, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)), token);
    });
    return told(best_at_once(m.draw), own, mass, top);
  }
  // By counting and weighing everything, for what the quick ways do not decide.
  __device__ uint64_t draw_exactly(float own, float top) {
    SampleBlock all = block;
    all.values = slice.from;
    Cut cut;
    if (row.top_k > 0 && row.top_k < slice.a->n_vocab)
      cut = exact_select(all, m.s, cut, {}, top, 32 * row.temperature,
                         static_cast<uint64_t>(row.top_k), 1);
    if (row.top_p < 1) {
      const Measure measure = {true, static_cast<double>(top),
                               1.0 / static_cast<double>(row.temperature)};
      cut = exact_select(all, m.s, cut, measure, top, 32 * row.temperature, 0, row.top_p);
    }
    block.turn = all.turn;
    return draw(own, top, -kInfinity, false,
                [&](float v, int32_t token) { return cut.keeps(v, token); })
        .best;
  }
  __device__ float logit_of(int32_t token) const {
    return slice.a->logits[row.row * slice.a->stride + token];
  }

  // From the draw among all tokens to the one among those that are kept; 0 where the sums do not
  // decide. Of rows without penalties and mask.
  __device__ uint64_t truncate(uint64_t best, float own, const Told& all) {
    const float top = all.top;
    const double wanted = static_cast<double>(row.top_p) * all.mass;
    const double margin = all.mass * (1e-5 + 4e-7 * static_cast<double>(fabsf(top * inverse_t)));
    while (true) {
      const int32_t token = token_of(best);
      const float logit = logit_of(token);
      // The draw among the better ones costs little beside their mass, and few draws need it.
      const Told before = draw(own, top, logit, true, [&](float v, int32_t id) {
        return v > logit || (v == logit && id < token);
      });
      if (before.mass == 0) return best;  // the likeliest
      if (fabs(before.mass - wanted) <= margin) return 0;
      if (before.mass < wanted && reaches_min_p(logit, top)) return best;
      if (before.best == 0) return 0;
      best = before.best;
    }
  }

  // A key that `wanted` of the row's tops reach, and not many more, if so many are finite, else the
  // lowest; and the largest key.
  __device__ uint32_t bound_of_tops(uint32_t wanted, uint32_t& highest) {
    constexpr uint32_t kAll = 0xFFFFFFFFu;
    const auto me = static_cast<int>(threadIdx.x), warp = me / 32, lane = me % 32;
    uint32_t tops[kSampleBlocks], high = 0, low = kAll;
#pragma unroll
    for (int b = 0; b < kSampleBlocks; ++b) {
      tops[b] = m.s.tops[b * kStreamThreads + me];
      high = max(high, tops[b]);
      if (tops[b] >= kLowestKey) low = min(low, tops[b]);
    }
    high = __reduce_max_sync(kAll, high);
    low = __reduce_min_sync(kAll, low);
    if (lane == 0) {
      m.warp_sums[0][warp] = high;
      m.warp_least[warp] = low;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kStreamThreads / 32; ++w) {
      high = max(high, m.warp_sums[0][w]);
      low = min(low, m.warp_least[w]);
    }
    highest = high;
    if (high < kLowestKey || low > high) return kLowestKey;
    uint32_t above = 0;
    while (true) {
      const int shift = max(0, 24 - __clz(static_cast<int>(high - low)));  // 256 bins
      m.histogram[me] = 0;
      if (me == 0) m.found = {0, 0, 0};
      __syncthreads();
#pragma unroll
      for (int b = 0; b < kSampleBlocks; ++b)
        if (tops[b] >= low && tops[b] <= high)
          atomicAdd(&m.histogram[(high - tops[b]) >> shift], 1u);
      __syncthreads();
      const uint32_t mine = m.histogram[me];
      uint32_t upto = mine;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(kAll, upto, step);
        if (lane >= step) upto += other;
      }
      if (lane == 31) m.warp_sums[1][warp] = upto;
      __syncthreads();
      upto += above;
      for (int w = 0; w < warp; ++w) upto += m.warp_sums[1][w];
      if (upto >= wanted && upto - mine < wanted)
        m.found = {static_cast<uint32_t>(me), upto - mine, mine};
      __syncthreads();
      const uint3 found = m.found;
      if (found.z == 0) return kLowestKey;
      above = found.y;
      high -= found.x << shift;
      const uint32_t span = (1u << shift) - 1;
      low = high - low > span ? high - span : low;
      if (above + found.z <= wanted + wanted / 4 || low == high) return low;
      __syncthreads();  // all have read what is found
    }
  }

  // A draw among the top-k, which all stand in one list: the result is block 0's. `fits`: they do.
  // Of rows without penalties and mask.
  __device__ uint64_t draw_of_few(float own, int k, float& top, bool& fits) {
    const auto rank = static_cast<int>(block.rank());
    const auto me = static_cast<int>(threadIdx.x);
    const uint32_t mine = key_of(own);
    if (me == 0) m.s.n_listed = m.n_mine = 0;
#pragma unroll
    for (int b = 0; b < kSampleBlocks; ++b)
      *block.cluster.map_shared_rank(&m.s.tops[rank * kStreamThreads + me], b) = mine;
    block.cluster.sync();
    uint32_t highest;
    const float least = float_of(bound_of_tops(static_cast<uint32_t>(k), highest));
    top = float_of(highest);
    SampleShared* list = block.cluster.map_shared_rank(&m.s, 0);
    walk_hot(slice, m, own, least, [&](float4 v, int32_t token) {
      const auto offer = [&](float x, int32_t id) {
        if (!(x >= least)) return;
        atomicAdd(&m.n_mine, 1u);
        const uint32_t at = atomicAdd(&list->n_listed, 1u);
        if (at < kListed) list->listed[at] = {x, id, x};
      };
      offer(v.x, token);
      offer(v.y, token + 1);
      offer(v.z, token + 2);
      offer(v.w, token + 3);
    });
    __syncthreads();
    if (me < kSampleBlocks) *block.cluster.map_shared_rank(&m.listed[rank], me) = m.n_mine;
    block.cluster.sync();
    uint32_t n = 0;
#pragma unroll
    for (int b = 0; b < kSampleBlocks; ++b) n += m.listed[b];
    fits = n <= kListed;
    if (!fits || rank != 0 || isinf(top) || isnan(top)) return 0;
    return draw_listed(static_cast<int>(n), min(static_cast<int>(n), k), top);
  }

  // Block 0: the list in order, its first `kept`, and of those what top-p and min-p leave.
  __device__ uint64_t draw_listed(int n, int kept, float top) {
    const auto me = static_cast<int>(threadIdx.x);
    SampleShared& s = m.s;
    const double inverse = 1.0 / static_cast<double>(row.temperature);
    for (int i = me; i < n; i += kStreamThreads) {
      const Contender mine = s.listed[i];
      int place = 0;
      for (int j = 0; j < n; ++j) place += wins(s.listed[j], mine) ? 1 : 0;
      if (place >= kept) continue;
      s.bins.ordered[place] = mine;
      s.bins.weights[place] =
          exp((static_cast<double>(mine.logit) - static_cast<double>(top)) * inverse);
    }
    __syncthreads();
    uint64_t best = 0;
    if (me < kept) {
      const Contender mine = s.bins.ordered[me];
      bool stands = !(row.min_p > 0 && s.bins.weights[me] < static_cast<double>(row.min_p));
      if (row.top_p < 1 && me > 0) {
        // As the host adds: one after the other.
        double total = 0, before = 0;
        for (int i = 0; i < kept; ++i) {
          if (i == me) before = total;
          total += s.bins.weights[i];
        }
        stands = stands && before < static_cast<double>(row.top_p) * total;
      }
      const float scaled = __fmul_rn(mine.logit, inverse_t);
      const float value =
          __fadd_rn(scaled, noise_value(noise_bits(noise, static_cast<uint32_t>(mine.token))));
      if (stands) best = packed(key_of(value), mine.token);
    }
    const auto high = static_cast<uint32_t>(best >> 32);
    const uint32_t highest = __reduce_max_sync(0xFFFFFFFFu, high);
    const uint32_t low =
        __reduce_max_sync(0xFFFFFFFFu, high == highest ? static_cast<uint32_t>(best) : 0);
    if (me % 32 == 0) m.warps[0][me / 32].best = static_cast<uint64_t>(highest) << 32 | low;
    __syncthreads();
    best = 0;
    for (int w = 0; w < kStreamThreads / 32; ++w)
      best = m.warps[0][w].best > best ? m.warps[0][w].best : best;
    return best;
  }
};

}  // namespace hadal::cuda
