#include "base/metrics/trace.h"

#include <gtest/gtest.h>

namespace hadal::metrics {
namespace {

constexpr std::string_view kGood = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Traceparent, WhatIsReadIsWrittenAgain) {
  const auto context = parse_traceparent(kGood);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_high, 0x4bf92f3577b34da6u);
  EXPECT_EQ(context->span, 0x00f067aa0ba902b7u);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(traceparent(*context), kGood);
}

TEST(Traceparent, HeadersThatTheSpecificationRefusesAreNone) {
  const std::string good(kGood);
  const std::vector<std::string> all = {"",
                                        good.substr(0, 54),
                                        good + "-x",
                                        "ff" + good.substr(2),
                                        "0g" + good.substr(2),
                                        "01" + good.substr(2) + "x",
                                        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                                        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                                        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                                        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
  for (const std::string& bad : all) EXPECT_FALSE(parse_traceparent(bad)) << bad;
}

TEST(Traceparent, LaterVersionsAreReadAsFarAsTheyAreKnown) {
  const auto context = parse_traceparent("cc" + std::string(kGood.substr(2)) + "-what-comes");
  ASSERT_TRUE(context);
  EXPECT_EQ(traceparent(*context), kGood);
}

}  // namespace
}  // namespace hadal::metrics
