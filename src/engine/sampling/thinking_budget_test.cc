#include "engine/sampling/thinking_budget.h"

#include <vector>

#include <gtest/gtest.h>

namespace hadal::sampling {
namespace {

using Ids = std::vector<types::TokenId>;

// Plays a model that writes `wanted`, one id at a time.
Ids play(const types::ThinkingBudget& budget, const Ids& wanted) {
  Ids out;
  while (out.size() < wanted.size()) {
    out.push_back(forced_by_budget(budget, out).value_or(wanted[out.size()]));
  }
  return out;
}

TEST(ThinkingBudget, TheEndIsForcedWhenTheBudgetIsUsedUp) {
  EXPECT_EQ(play({2, {9}}, {1, 1, 1, 1, 1}), (Ids{1, 1, 9, 1, 1}));
  EXPECT_EQ(play({0, {9}}, {1, 1}), (Ids{9, 1}));
  EXPECT_EQ(play({2, {8, 9}}, {1, 1, 1, 1, 1}), (Ids{1, 1, 8, 9, 1}));
}

TEST(ThinkingBudget, AnEndOfItsOwnIsLeftAlone) {
  EXPECT_EQ(play({2, {9}}, {1, 9, 1, 1, 1}), (Ids{1, 9, 1, 1, 1}));
  EXPECT_EQ(play({3, {8, 9}}, {1, 8, 9, 1, 1}), (Ids{1, 8, 9, 1, 1}));
}

TEST(ThinkingBudget, HalfAnEndAtTheLimitIsWrittenAgain) {
  EXPECT_EQ(play({2, {8, 9}}, {1, 8, 1, 1, 1}), (Ids{1, 8, 8, 9, 1}));
}

TEST(ThinkingBudget, TheLookDoesNotReachIntoTheAnswer) {
  // An end token that the answer spells long after is no reason to look there.
  Ids generated(100'000, 1);
  generated[2] = 9;
  EXPECT_FALSE(forced_by_budget({2, {9}}, generated));
}

}  // namespace
}  // namespace hadal::sampling
