#include "engine/sampling/token_path.h"

#include <vector>

#include <gtest/gtest.h>

namespace hadal::sampling {
namespace {

using Ids = std::vector<types::TokenId>;

// 1, then 2 or 3, then 4.
types::TokenPath diamond(types::TokenId after) {
  types::TokenPath path;
  path.after = after;
  path.states = {{{1, 1}}, {{2, 2}, {3, 2}}, {{4, 3}}, {}};
  return path;
}

Ids allowed(const types::TokenPath& path, const Ids& generated) {
  Ids out;
  for (const auto& edge : place_on_path(path, generated).edges) out.push_back(edge.token);
  return out;
}

TEST(TokenPath, FromTheBeginning) {
  const types::TokenPath path = diamond(-1);
  EXPECT_EQ(allowed(path, {}), (Ids{1}));
  EXPECT_EQ(allowed(path, {1}), (Ids{2, 3}));
  EXPECT_EQ(allowed(path, {1, 3}), (Ids{4}));
  EXPECT_EQ(allowed(path, {1, 3, 4}), (Ids{}));
  EXPECT_EQ(allowed(path, {1, 3, 4, 1}), (Ids{}));
}

TEST(TokenPath, AfterATokenThatHasToComeFirst) {
  const types::TokenPath path = diamond(9);
  EXPECT_TRUE(place_on_path(path, {}).waits);
  EXPECT_TRUE(place_on_path(path, Ids{1, 2}).waits);
  EXPECT_EQ(allowed(path, {1, 2, 9}), (Ids{1}));
  EXPECT_EQ(allowed(path, {9, 1}), (Ids{2, 3}));
  EXPECT_FALSE(place_on_path(path, Ids{9, 1}).waits);
  EXPECT_EQ(allowed(path, {9, 1, 2, 4, 9}), (Ids{}));
}

TEST(TokenPath, OutputThatLeftThePathIsFree) {
  EXPECT_EQ(allowed(diamond(-1), {1, 7}), (Ids{}));
}

}  // namespace
}  // namespace hadal::sampling
