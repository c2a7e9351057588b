#include "main/short_model.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "compute/weights/checkpoint.h"
#include "compute/weights/layout.h"
#include "compute/weights/read_file.h"

namespace hadal::main {
namespace {

std::string released() {
  return weights::read_file(
             std::string(HADAL_SOURCE_DIR) + "/src/compute/weights/testdata/released_config.json",
             1 << 20)
      .value();
}

TEST(ShortModel, KeepsHalfOfTheLayersFromEachSideOfTheSplit) {
  const auto whole = weights::parse_model_config(released(), "whole").value();
  const auto text = shorten_config(released(), 16);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const auto cut = weights::parse_model_config(*text, "cut");
  ASSERT_TRUE(cut.has_value()) << cut.error().message;
  EXPECT_EQ(cut->n_layers, 16);
  EXPECT_EQ(cut->split_layer, 8);
  EXPECT_EQ(cut->kv_sources, (std::vector<int32_t>{2, 8}));
  EXPECT_EQ(cut->index_sources, (std::vector<int32_t>{2, 8, 12}));
  EXPECT_EQ(cut->pool_source, 8);
  EXPECT_TRUE(cut->engram.layers.empty());
  // Everything that a step of one layer touches is of the released size.
  for (int32_t l = 0; l < 8; ++l) {
    EXPECT_EQ(cut->roles[static_cast<size_t>(l)].ratio, whole.roles[static_cast<size_t>(l)].ratio);
    EXPECT_EQ(cut->roles[static_cast<size_t>(8 + l)].ratio,
              whole.roles[static_cast<size_t>(20 + l)].ratio);
  }
  EXPECT_EQ(cut->n_experts, whole.n_experts);
  EXPECT_EQ(cut->d_hidden, whole.d_hidden);
}

TEST(ShortModel, RefusesAsManyLayersAsThereAre) {
  const auto refused = shorten_config(released(), 40);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("the model has 40"), std::string::npos);
}

TEST(ShortModel, TheHostMustHoldTheWeightsTwice) {
  const auto cut = weights::parse_model_config(*shorten_config(released(), 6), "cut");
  ASSERT_TRUE(cut.has_value());
  const core::Status refused = check_host_holds(*cut, 16'000'000'000);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, core::Code::kOverloaded);
  EXPECT_NE(refused.error().message.find("--layers 6"), std::string::npos);
  EXPECT_NE(refused.error().message.find("16.0 GB are free"), std::string::npos);
  EXPECT_TRUE(check_host_holds(*cut, 1'000'000'000'000).has_value());
}

TEST(ShortModel, RandomWeightsInMemoryFillTheLayoutOfTheirConfig) {
  const auto config = weights::load_model_config(std::string(HADAL_SOURCE_DIR) +
                                                 "/src/compute/weights/testdata/tiny_config.json");
  ASSERT_TRUE(config.has_value());
  const auto a = weights::Checkpoint::make_random(*config, 7, 2);
  const auto b = weights::Checkpoint::make_random(*config, 7, 1);
  ASSERT_TRUE(a.has_value() && b.has_value());
  weights::for_each_tensor(*config, [&](const weights::ExpectedTensor& t) {
    if (t.optional) return;
    const weights::Tensor* x = (*a)->find(t.name);
    const weights::Tensor* y = (*b)->find(t.name);
    ASSERT_TRUE(x != nullptr && y != nullptr) << t.name;
    EXPECT_EQ(x->shape, t.shape) << t.name;
    ASSERT_EQ(x->bytes.size(), t.n_bytes()) << t.name;
    EXPECT_TRUE(std::equal(x->bytes.begin(), x->bytes.end(), y->bytes.begin())) << t.name;
    // Dropping what was repacked must not lose it: there is no file behind.
    (*a)->drop(x->bytes);
    EXPECT_TRUE(std::equal(x->bytes.begin(), x->bytes.end(), y->bytes.begin())) << t.name;
  });
}

}  // namespace
}  // namespace hadal::main
