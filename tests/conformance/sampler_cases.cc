#include <cmath>
#include <limits>

#include "base/core/check.h"
#include "conformance/op_cases.h"
#include "engine/sampling/sampler.h"

// The device's sampler against the host's on the same bits of logits: states and ids must be equal.
// A backend without a sampler is sampled on the host, as in the engine, and so is the reference.
namespace hadal::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What one row asks for, kept alive for both sides.
struct Asked {
  types::SamplingParams params;
  std::vector<uint32_t> allowed;
  std::vector<int32_t> banned, prompt, output;
  uint64_t position = 0;
  bool counts = false;
};

// Kinds of logits: wide, many ties, peaked, all equal, flat, holes, zeros of both signs; then rows
// that have no token, and rising ones, where each token seen may win.
std::vector<float> draw_logits(Draw& d, uint32_t kind, int64_t n) {
  std::vector<float> v = d.f32(n, 3);
  const auto size = static_cast<uint32_t>(n);
  for (float& x : v) {
    if (kind == 1) x = std::round(x);
    if (kind == 3) x = 2.5f;
    if (kind == 4) x = x * 1e-3f - 7;
    if (kind == 5 && d.bits() % 3 != 0) x = -kInfinity;
    if (kind == 6) x = d.bits() % 2 == 0 ? 0.0f : -0.0f;
    if (kind == 9) x = -kInfinity;
  }
  for (int i = 0; kind == 2 && i < 50; ++i) v[d.bits() % size] += 15;
  for (size_t i = 0; kind == 10 && i < v.size(); ++i) v[i] = static_cast<float>(i) * 0.01f;
  if (kind == 7) v[d.bits() % size] = std::nanf("");
  if (kind == 8) v[d.bits() % size] = kInfinity;
  return v;
}

Asked draw_row(Draw& d, int64_t n) {
  const auto size = static_cast<uint32_t>(n);
  const auto one_in = [&](uint32_t k) { return d.bits() % k == 0; };
  const auto token = [&](uint32_t below) { return static_cast<int32_t>(d.bits() % below); };
  Asked a;
  types::SamplingParams& p = a.params;
  p.temperature = one_in(4) ? 0 : 0.2f + static_cast<float>(d.bits() % 20) / 10;
  if (one_in(2)) p.top_p = static_cast<float>(1 + d.bits() % 99) / 100;
  if (one_in(3)) p.min_p = static_cast<float>(d.bits() % 30) / 100;
  if (one_in(3)) p.top_k = 1 + token(one_in(2) ? 60 : size);
  p.seed = d.bits();
  p.stream = d.bits() % 3;
  a.position = d.bits();
  a.counts = one_in(3);
  if (a.counts) {
    p.repetition_penalty = one_in(2) ? 1.0f : 1.3f;
    p.presence_penalty = 0.4f;
    p.frequency_penalty = 0.17f;
    for (int i = 0; i < 500; ++i) a.prompt.push_back(token(size));
    for (int i = 0; i < 300; ++i) a.output.push_back(token(std::min(size, 200u)));
  }
  if (one_in(4)) {
    a.allowed.resize(static_cast<size_t>((n + 31) / 32) - (one_in(5) ? 1 : 0));
    for (uint32_t& word : a.allowed) word = d.bits() & d.bits();
  }
  for (int i = 0; one_in(3) && i < 40; ++i) {
    p.logit_bias.emplace_back(token(size), d.normal() * 3);
    p.logit_bias.emplace_back(token(std::min(size, 30u)), d.normal());
  }
  if (one_in(3)) a.banned = {token(size), token(size), token(size)};
  p.logprobs = one_in(2);
  if (p.logprobs) p.n_top_logprobs = token(21);
  return a;
}

ops::SampleRow device_row(const Asked& a, int32_t slot) {
  const types::SamplingParams& p = a.params;
  return {.temperature = p.temperature,
          .top_p = p.top_p,
          .min_p = p.min_p,
          .top_k = p.top_k,
          .repetition = p.repetition_penalty,
          .presence = p.presence_penalty,
          .frequency = p.frequency_penalty,
          .slot = a.counts ? slot : -1,
          .seed = p.seed,
          .position = a.position,
          .stream = p.stream,
          .logprobs = p.logprobs,
          .n_top = p.n_top_logprobs,
          .bias = p.logit_bias,
          .allowed = a.allowed,
          .banned = a.banned};
}

ops::SampledToken host_row(const Asked& a, std::vector<float> logits) {
  const auto n = static_cast<uint32_t>(logits.size());
  sampling::SeenTokens seen(n);
  for (const int32_t token : a.prompt) seen.add_prompt(token);
  for (const int32_t token : a.output) seen.add_output(token);
  sampling::Workspace workspace(n);
  const auto event = sampling::sample_row({.logits = logits,
                                           .params = &a.params,
                                           .seen = a.counts ? &seen : nullptr,
                                           .allowed = a.allowed,
                                           .banned = a.banned,
                                           .position = a.position},
                                          workspace);
  ops::SampledToken out;
  if (!event) {
    const bool damaged = event.error().message == sampling::not_a_number().message;
    out.state =
        damaged ? ops::SampledToken::State::kNotANumber : ops::SampledToken::State::kNoToken;
    return out;
  }
  out.token = event->token;
  out.logprob = event->logprob;
  for (const types::TokenLogprob& entry : event->top) {
    out.top[static_cast<size_t>(out.n_top)] = entry.token;
    out.top_logprob[static_cast<size_t>(out.n_top++)] = entry.logprob;
  }
  return out;
}

void add_result(const ops::SampledToken& r, std::vector<int32_t>& ids,
                std::vector<float>& logprobs) {
  ids.push_back(static_cast<int32_t>(r.state));
  if (r.state != ops::SampledToken::State::kOk) return;
  // Sixteen lower: an absolute error, whatever the size of the log-probability.
  const auto shifted = [](float x) { return x - 16; };
  ids.push_back(r.token);
  ids.push_back(r.n_top);
  logprobs.push_back(shifted(r.logprob));
  for (size_t i = 0; i < static_cast<size_t>(r.n_top); ++i) {
    ids.push_back(r.top[i]);
    logprobs.push_back(shifted(r.top_logprob[i]));
  }
}

template <class T>
Output output_of(std::string name, OutType type, int ulps, const std::vector<T>& values) {
  Output out{std::move(name), type, ulps, 0, {}};
  const auto bytes = std::as_bytes(std::span(values));
  out.bytes.assign(bytes.begin(), bytes.end());
  return out;
}

// `rows` rows together, and then some of them alone, which must give the same.
std::vector<Output> sample(Bench& b, int64_t n, int32_t rows, uint64_t seed) {
  Draw d(seed);
  std::vector<Asked> asked;
  std::vector<std::vector<float>> logits;
  for (int32_t i = 0; i < rows; ++i) {
    asked.push_back(draw_row(d, n));
    logits.push_back(draw_logits(d, i % 13 < 11 ? static_cast<uint32_t>(i % 13) : d.bits() % 7, n));
  }
  auto made = b.backend().make_sampler(
      {.n_vocab = static_cast<int32_t>(n), .n_slots = rows, .max_rows = rows});
  HADAL_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  if (*made == nullptr) {
    for (size_t i = 0; i < asked.size(); ++i)
      add_result(host_row(asked[i], logits[i]), ids, logprobs);
    for (size_t i = 0; i < asked.size(); i += 7)
      add_result(host_row(asked[i], logits[i]), ids, logprobs);
  } else {
    ops::Sampler& sampler = **made;
    std::vector<float> all;
    std::vector<ops::SampleRow> wanted;
    const auto done = [](const core::Status& status) {
      HADAL_CHECK(status.has_value(), status.has_value() ? "" : status.error().message);
    };
    for (int32_t i = 0; i < rows; ++i) {
      const auto at = static_cast<size_t>(i);
      all.insert(all.end(), logits[at].begin(), logits[at].end());
      wanted.push_back(device_row(asked[at], i));
      sampler.clear(i, b.stream());
      done(sampler.count(i, asked[at].prompt, false, b.stream()));
      done(sampler.count(i, asked[at].output, true, b.stream()));
    }
    float* device = b.put(all);
    done(sampler.sample({device, rows, n}, wanted, b.stream()));
    b.sync();
    for (const ops::SampledToken& r : sampler.results()) add_result(r, ids, logprobs);
    for (int32_t i = 0; i < rows; i += 7) {
      done(sampler.sample({device + i * n, 1, n},
                          std::span(wanted).subspan(static_cast<size_t>(i), 1), b.stream()));
      b.sync();
      add_result(sampler.results()[0], ids, logprobs);
    }
  }
  return {output_of("ids", OutType::kI32, 0, ids),
          output_of("logprobs", OutType::kF32, 2, logprobs)};
}

}  // namespace

std::vector<OpCase> sampler_cases() {
  return {{"sampler 100 tokens", [](Bench& b) { return sample(b, 100, 65, 1); }},
          {"sampler 1000 tokens", [](Bench& b) { return sample(b, 1000, 65, 2); }},
          {"sampler 129280 tokens", [](Bench& b) { return sample(b, 129280, 26, 3); }, true}};
}

}  // namespace hadal::test
