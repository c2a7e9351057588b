#include "engine/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/core/philox.h"

namespace hadal::sampling {
namespace {

using Candidate = Workspace::Candidate;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// Best first; equal logits by the lower id. A total order: results never depend on how a selection
// algorithm moves things.
bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

void apply_penalties(const RowInput& row) {
  const types::SamplingParams& p = *row.params;
  if (row.seen != nullptr && has_penalties(p)) {
    for (const SeenTokens::Entry& entry : row.seen->entries()) {
      float& logit = row.logits[static_cast<size_t>(entry.token)];
      if (p.repetition_penalty != 1.0f)
        logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
      if (entry.n_output > 0) {
        logit -= p.frequency_penalty * static_cast<float>(entry.n_output);
        logit -= p.presence_penalty;
      }
    }
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token >= 0 && static_cast<size_t>(token) < row.logits.size())
      row.logits[static_cast<size_t>(token)] += bias;
  }
}

void apply_mask(const RowInput& row) {
  if (!row.allowed.empty()) {
    for (size_t word = 0; word * 32 < row.logits.size(); ++word) {
      const uint32_t bits = word < row.allowed.size() ? row.allowed[word] : 0u;
      if (bits == ~uint32_t{0}) continue;
      const size_t end = std::min(row.logits.size(), word * 32 + 32);
      for (size_t t = word * 32; t < end; ++t) {
        if (((bits >> (t % 32)) & 1u) == 0) row.logits[t] = kMinusInf;
      }
    }
  }
  for (const types::TokenId token : row.banned) {
    if (token >= 0 && static_cast<size_t>(token) < row.logits.size())
      row.logits[static_cast<size_t>(token)] = kMinusInf;
  }
}

// log(sum(exp(logit - top))) in double, in blocks of fixed places: the same for every machine.
double log_mass(std::span<const float> logits, float top) {
  double total = 0;
  for (const float logit : logits) {
    if (logit != kMinusInf)
      total += std::exp(static_cast<double>(logit) - static_cast<double>(top));
  }
  return std::log(total);
}

// Keeps of candidates [0, n) what top-p and min-p allow; they are sorted best first as far as
// needed. Returns how many stay.
size_t cut_tail(std::span<Candidate> candidates, const types::SamplingParams& p, bool sorted) {
  const auto top = static_cast<double>(
      sorted ? candidates[0].logit
             : std::min_element(candidates.begin(), candidates.end(), better)->logit);
  const double inverse_t = 1.0 / static_cast<double>(p.temperature);
  const auto weight = [&](const Candidate& c) {
    return std::exp((static_cast<double>(c.logit) - top) * inverse_t);
  };
  size_t n = candidates.size();
  if (p.top_p < 1.0f) {
    double total = 0;
    for (const Candidate& c : candidates) total += weight(c);
    const double wanted = static_cast<double>(p.top_p) * total;
    // Sorted in growing prefixes: the nucleus is small in nearly all rows, and sorting a whole
    // vocabulary is not needed.
    size_t n_sorted = sorted ? candidates.size() : 0;
    double mass = 0;
    size_t kept = 0;
    while (kept < candidates.size() && (kept == 0 || mass < wanted)) {
      if (kept == n_sorted) {
        const size_t grow = std::min(candidates.size(), std::max<size_t>(64, 8 * n_sorted));
        const auto begin = candidates.begin() + static_cast<std::ptrdiff_t>(n_sorted);
        const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(grow);
        if (grow < candidates.size()) std::nth_element(begin, end, candidates.end(), better);
        std::sort(begin, end, better);
        n_sorted = grow;
      }
      mass += weight(candidates[kept]);
      ++kept;
    }
    n = kept;
  }
  if (p.min_p > 0.0f) {
    const auto floor = static_cast<double>(p.min_p);
    const auto end =
        std::remove_if(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(n),
                       [&](const Candidate& c) { return weight(c) < floor; });
    n = static_cast<size_t>(end - candidates.begin());
  }
  return n;
}

// No noise exceeds -log(-log(1 - 2^-25)) = 25 log 2 = 17.33.
constexpr float kMaxNoise = 17.4f;

// 24 bits of each token of a row; the four of the last Philox call are kept for its neighbours.
class NoiseBits {
 public:
  NoiseBits(uint64_t seed, uint64_t position, uint32_t stream)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        counter_{0, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream},
        words_(core::philox4x32(counter_, key_)) {}
  uint32_t operator()(types::TokenId token) {
    const uint32_t four = static_cast<uint32_t>(token) / 4;
    if (four != counter_[0]) {
      counter_[0] = four;
      words_ = core::philox4x32(counter_, key_);
    }
    return words_[static_cast<uint32_t>(token) % 4] >> 8;
  }

 private:
  const std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> words_;  // of counter_
};

// Centred in their cell, so that u is neither 0 nor 1. In double: exact inputs, one rounding at the
// end.
float noise_of(uint32_t bits) {
  const double u = (static_cast<double>(bits) + 0.5) * 0x1p-24;
  return static_cast<float>(-std::log(-std::log(u)));
}

// At least noise_of(bits), by little where that is large, without its logarithms: noise is at most
// -log(1 - u), and log2 of a float 2^e (1 + m) is at least e + m, which are its bits.
float noise_limit(uint32_t bits) {
  const auto rest = static_cast<float>((1u << 25) - 1 - 2 * bits);  // (1 - u) * 2^25
  const auto log2_rest = static_cast<float>(std::bit_cast<int32_t>(rest) - (127 << 23)) * 0x1p-23f;
  return (25 - log2_rest) * 0.693147f + 1e-3f;
}

// `likeliest` is one of the candidates. Noise is drawn only where it could still win, which changes
// nothing but the time.
types::TokenId draw(std::span<const Candidate> candidates, const Candidate& likeliest,
                    const RowInput& row) {
  const types::SamplingParams& p = *row.params;
  const float inverse_t = 1.0f / p.temperature;
  NoiseBits bits_of(p.seed, row.position, p.stream);
  types::TokenId best = likeliest.token;
  float best_value = likeliest.logit * inverse_t + noise_of(bits_of(likeliest.token));
  for (const Candidate& c : candidates) {
    const float scaled = c.logit * inverse_t;
    if (scaled + kMaxNoise < best_value) continue;
    const uint32_t bits = bits_of(c.token);
    if (scaled + noise_limit(bits) < best_value) continue;
    const float value = scaled + noise_of(bits);
    if (value > best_value || (value == best_value && c.token < best)) {
      best = c.token;
      best_value = value;
    }
  }
  return best;
}

void add_logprobs(const RowInput& row, float top, Workspace& workspace, types::TokenEvent& event) {
  const types::SamplingParams& p = *row.params;
  if (!p.logprobs) return;
  const double mass = log_mass(row.logits, top);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(top) - mass);
  };
  event.logprob = logprob(row.logits[static_cast<size_t>(event.token)]);
  const auto n_top =
      std::min<size_t>(static_cast<size_t>(std::max(p.n_top_logprobs, 0)), row.logits.size());
  if (n_top == 0) return;
  auto& all = workspace.candidates;
  for (size_t t = 0; t < row.logits.size(); ++t)
    all[t] = {row.logits[t], static_cast<types::TokenId>(t)};
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(row.logits.size());
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(n_top);
  std::nth_element(all.begin(), middle - 1, end, better);
  std::sort(all.begin(), middle, better);
  for (size_t i = 0; i < n_top && all[i].logit != kMinusInf; ++i)
    event.top.push_back({all[i].token, logprob(all[i].logit)});
}

}  // namespace

Workspace::Workspace(uint32_t n_vocab) : candidates(n_vocab) {}

bool has_penalties(const types::SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

core::Error not_a_number() {
  return {core::Code::kInternal,
          "the model gave a logit that is not a number; the weights or this machine's arithmetic "
          "are damaged"};
}

core::Error no_token_left() {
  return {core::Code::kInternal,
          "no token is allowed at this place: grammar, logit_bias and banned tokens exclude all"};
}

float gumbel_noise(uint64_t seed, uint64_t position, uint32_t stream, types::TokenId token) {
  return noise_of(NoiseBits(seed, position, stream)(token));
}

core::Result<types::TokenEvent> sample_row(const RowInput& row, Workspace& workspace) {
  const types::SamplingParams& p = *row.params;
  HADAL_CHECK(workspace.candidates.size() >= row.logits.size(),
              "workspace of a smaller vocabulary");
  apply_penalties(row);
  apply_mask(row);
  size_t argmax = 0;
  bool is_nan = false;
  for (size_t t = 0; t < row.logits.size(); ++t) {
    if (row.logits[t] > row.logits[argmax]) argmax = t;
    is_nan = is_nan || std::isnan(row.logits[t]);
  }
  const float top = row.logits.empty() ? kMinusInf : row.logits[argmax];
  if (is_nan) return not_a_number();
  if (!(top > kMinusInf) || std::isinf(top)) return no_token_left();
  types::TokenEvent event;
  event.token = static_cast<types::TokenId>(argmax);
  if (p.temperature > 0.0f) {
    size_t n = 0;
    for (size_t t = 0; t < row.logits.size(); ++t) {
      if (row.logits[t] != kMinusInf)
        workspace.candidates[n++] = {row.logits[t], static_cast<types::TokenId>(t)};
    }
    const auto begin = workspace.candidates.begin();
    bool sorted = false;
    if (p.top_k > 0 && static_cast<size_t>(p.top_k) < n) {
      std::nth_element(begin, begin + p.top_k - 1, begin + static_cast<std::ptrdiff_t>(n), better);
      n = static_cast<size_t>(p.top_k);
      std::sort(begin, begin + p.top_k, better);
      sorted = true;
    }
    std::span<Candidate> kept(workspace.candidates.data(), n);
    if (p.top_p < 1.0f || p.min_p > 0.0f) kept = kept.first(cut_tail(kept, p, sorted));
    event.token = draw(kept, {top, event.token}, row);
  }
  add_logprobs(row, top, workspace, event);
  return event;
}

}  // namespace hadal::sampling
