#include "main/loading_progress.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hadal::main {
namespace {

class HandClock final : public core::Clock {
 public:
  core::TimePoint now() const override { return now_; }
  void pass(int ms) { now_ += std::chrono::milliseconds(ms); }

 private:
  core::TimePoint now_;
};

TEST(LoadingProgress, TellsAtMostOnceASecondAndNothingOfWhatIsFast) {
  HandClock clock;
  std::vector<std::string> lines;
  LoadingProgress progress(clock, [&](std::string_view line) { lines.emplace_back(line); });
  constexpr uint64_t kTotal = 2'200'000'000;
  for (uint64_t step = 0; step <= 22; ++step) {  // 2.2 s
    progress.tell("checked", step * 100'000'000, kTotal);
    clock.pass(100);
  }
  for (uint64_t step = 0; step <= 8; ++step) {  // 0.8 s more
    progress.tell("packed", step * 100'000'000, kTotal);
    clock.pass(100);
  }
  EXPECT_THAT(lines, testing::ElementsAre("loading: 1.0 of 2.2 GB checked",
                                          "loading: 2.0 of 2.2 GB checked",
                                          "loading: 0.7 of 2.2 GB packed"));
}

TEST(LoadingProgress, WithoutAPlaceToShowNothingIsTold) {
  HandClock clock;
  LoadingProgress progress(clock, {});
  clock.pass(5000);
  progress.tell("checked", 1, 2);
}

}  // namespace
}  // namespace hadal::main
