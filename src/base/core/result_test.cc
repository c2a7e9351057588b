#include "base/core/result.h"

#include <memory>

#include <gtest/gtest.h>

namespace hadal::core {
namespace {

Result<int> parse(bool good) {
  if (!good) return Error{Code::kInvalidRequest, "bad", "field"};
  return 7;
}

Result<std::unique_ptr<int>> doubled(bool good) {
  HADAL_TRY(const int value, parse(good));
  return std::make_unique<int>(2 * value);
}

Status checked(bool good) {
  HADAL_TRY_VOID(doubled(good).has_value() ? Status() : Status(Error{Code::kIo, "lost"}));
  return {};
}

TEST(Result, TryReturnsTheErrorToTheCaller) {
  EXPECT_EQ(**doubled(true), 14);
  const auto failed = doubled(false);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::kInvalidRequest);
  EXPECT_EQ(failed.error().param, "field");
  EXPECT_TRUE(checked(true).has_value());
  EXPECT_EQ(checked(false).error().code, Code::kIo);
}

TEST(ResultDeathTest, TakingTheValueOfAnErrorAborts) {
  EXPECT_DEATH(static_cast<void>(parse(false).value()), "bad");
}

}  // namespace
}  // namespace hadal::core
