#include "engine/sampling/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/core/philox.h"

namespace hadal::sampling {
namespace {

struct Row {
  std::vector<float> logits;
  types::SamplingParams params;
  const SeenTokens* seen = nullptr;
  std::vector<uint32_t> allowed = {};
  std::vector<types::TokenId> banned = {};
  uint64_t position = 0;

  core::Result<types::TokenEvent> sample() const {
    std::vector<float> copy = logits;
    Workspace workspace(static_cast<uint32_t>(copy.size()));
    return sample_row({copy, &params, seen, allowed, banned, position}, workspace);
  }
  types::TokenId token() const { return sample().value().token; }
};

std::vector<float> random_logits(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> out(n);
  for (float& value : out) value = normal(random);
  return out;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Row row{{1, 5, 5, 2}, {}};
  row.params.temperature = 0;
  EXPECT_EQ(row.token(), 1);
}

// Frozen: a change here changes every seeded answer of every client.
TEST(Sampler, NoiseIsFrozen) {
  EXPECT_NEAR(gumbel_noise(42, 7, 0, 11), gumbel_noise(42, 7, 0, 11), 0);
  EXPECT_NE(gumbel_noise(42, 7, 0, 11), gumbel_noise(42, 8, 0, 11));
  EXPECT_NE(gumbel_noise(42, 7, 0, 11), gumbel_noise(42, 7, 1, 11));
  EXPECT_NE(gumbel_noise(42, 7, 0, 11), gumbel_noise(43, 7, 0, 11));
  Row row{random_logits(1000, 1), {}};
  row.params.seed = 1234;
  std::vector<types::TokenId> drawn;
  for (row.position = 0; row.position < 8; ++row.position) drawn.push_back(row.token());
  EXPECT_EQ(drawn, (std::vector<types::TokenId>{405, 737, 433, 787, 719, 787, 76, 737}));
}

TEST(Sampler, NoiseOfFourNeighboursIsOneCall) {
  const auto words = core::philox4x32({29, 7, 3, 1}, {42, 5});
  for (uint32_t k = 0; k < 4; ++k) {
    const double u = (static_cast<double>(words[k] >> 8) + 0.5) / 16777216;
    EXPECT_EQ(
        gumbel_noise(5ull << 32 | 42, 3ull << 32 | 7, 1, static_cast<types::TokenId>(116 + k)),
        static_cast<float>(-std::log(-std::log(u))));
  }
}

// Chi-square over 20,000 positions against the exact softmax; 31 degrees of freedom, 61.1 is the
// 0.1 % point.
TEST(Sampler, DrawsFollowTheSoftmax) {
  Row row{random_logits(32, 5), {}};
  for (float& logit : row.logits) logit *= 0.4f;
  row.params.temperature = 0.8f;
  row.params.seed = 99;
  std::vector<double> expected(32);
  for (size_t t = 0; t < 32; ++t) expected[t] = std::exp(static_cast<double>(row.logits[t]) / 0.8);
  const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
  std::vector<double> seen(32);
  constexpr int kDraws = 20'000;
  for (row.position = 0; row.position < kDraws; ++row.position)
    seen[static_cast<size_t>(row.token())] += 1;
  double chi = 0;
  for (size_t t = 0; t < 32; ++t) {
    const double mean = kDraws * expected[t] / total;
    chi += (seen[t] - mean) * (seen[t] - mean) / mean;
  }
  EXPECT_LT(chi, 61.1);
}

// The set that top-k, top-p and min-p leave, by sorting everything in double.
std::vector<types::TokenId> naive_kept(const Row& row) {
  std::vector<types::TokenId> order(row.logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return row.logits[static_cast<size_t>(a)] > row.logits[static_cast<size_t>(b)];
  });
  if (row.params.top_k > 0)
    order.resize(std::min(order.size(), static_cast<size_t>(row.params.top_k)));
  std::vector<double> weight;
  for (const auto t : order) {
    weight.push_back(std::exp((static_cast<double>(row.logits[static_cast<size_t>(t)]) -
                               static_cast<double>(row.logits[static_cast<size_t>(order[0])])) /
                              static_cast<double>(row.params.temperature)));
  }
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::vector<types::TokenId> kept;
  double mass = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (row.params.top_p < 1 && i > 0 && mass >= static_cast<double>(row.params.top_p) * total)
      break;
    mass += weight[i];
    if (weight[i] >= static_cast<double>(row.params.min_p)) kept.push_back(order[i]);
  }
  return kept;
}

TEST(Sampler, TruncationAgreesWithSortingEverything) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Row row{random_logits(3000, static_cast<uint32_t>(round)), {}};
    row.params.temperature = 0.3f + static_cast<float>(random() % 30) / 10.0f;
    row.params.top_k = round % 3 == 0 ? 0 : static_cast<int32_t>(1 + random() % 400);
    row.params.top_p = round % 2 == 0 ? 1.0f : static_cast<float>(1 + random() % 99) / 100.0f;
    row.params.min_p = round % 5 == 0 ? 0.05f : 0.0f;
    row.params.seed = static_cast<uint64_t>(round);
    const auto kept = naive_kept(row);
    types::TokenId best = -1;
    float best_value = 0;
    for (const auto t : kept) {
      const float value = row.logits[static_cast<size_t>(t)] * (1.0f / row.params.temperature) +
                          gumbel_noise(row.params.seed, 0, 0, t);
      if (best < 0 || value > best_value) {
        best = t;
        best_value = value;
      }
    }
    EXPECT_EQ(row.token(), best) << round;
  }
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  SeenTokens seen(4);
  seen.add_prompt(0);
  seen.add_output(1);
  seen.add_output(1);
  seen.add_output(2);
  Row row{{4, 4, -1, 1}, {}, &seen};
  row.params.temperature = 0;
  row.params.repetition_penalty = 2;
  row.params.frequency_penalty = 0.5f;
  row.params.presence_penalty = 0.25f;
  row.params.logprobs = true;
  row.params.n_top_logprobs = 4;
  const auto event = row.sample().value();  // 2, 4/2 - 1 - 0.25 = 0.75, -2 - 0.5 - 0.25 = -2.75, 1
  EXPECT_EQ(event.token, 0);
  ASSERT_EQ(event.top.size(), 4u);
  EXPECT_EQ(event.top[1].token, 3);
  EXPECT_NEAR(event.top[0].logprob - event.top[2].logprob, 1.25f, 1e-5f);
  EXPECT_NEAR(event.top[0].logprob - event.top[3].logprob, 4.75f, 1e-5f);
  double mass = 0;
  for (const auto& entry : event.top) mass += std::exp(static_cast<double>(entry.logprob));
  EXPECT_NEAR(mass, 1, 1e-6);
}

TEST(Sampler, MaskAndBansAreNeverBroken) {
  Row row{random_logits(100, 8), {}};
  row.allowed = {0u, 0x00000100u, 0u, 1u};
  for (row.position = 0; row.position < 200; ++row.position) {
    const auto token = row.token();
    EXPECT_TRUE(token == 40 || token == 96) << token;
  }
  row.banned = {40};
  EXPECT_EQ(row.token(), 96);
  row.banned = {40, 96};
  EXPECT_FALSE(row.sample().has_value());
}

TEST(Sampler, DamagedRowsAreErrorsNeverATokenZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE((Row{{1, nan, 2}, {}}).sample().has_value());
  EXPECT_FALSE((Row{{nan, 1, 2}, {}}).sample().has_value());
  EXPECT_FALSE((Row{{-inf, -inf}, {}}).sample().has_value());
  EXPECT_FALSE((Row{{1, inf}, {}}).sample().has_value());
}

TEST(SeenTokens, ClearForgetsEverything) {
  SeenTokens seen(10);
  seen.add_output(3);
  seen.clear();
  EXPECT_TRUE(seen.entries().empty());
  seen.add_prompt(3);
  EXPECT_EQ(seen.entries().front().n_output, 0u);
}

}  // namespace
}  // namespace hadal::sampling
