#include "main/stall_watch.h"

#include <gtest/gtest.h>

namespace hadal::main {
namespace {

using std::chrono::seconds;

TEST(StallWatch, TellsOfWorkWithoutStepsAndOfItsEnd) {
  StallWatch watch(seconds(30));
  const core::TimePoint start{};
  const StallWatch::Look stuck{.n_steps = 7, .n_running = 3, .n_waiting = 1};
  EXPECT_EQ(watch.look(start, stuck), "");
  EXPECT_EQ(watch.look(start + seconds(29), stuck), "");
  EXPECT_NE(watch.look(start + seconds(30), stuck).find("no step since 30 s: step 7"),
            std::string::npos);
  EXPECT_EQ(watch.idle(), seconds(30));
  EXPECT_EQ(watch.look(start + seconds(59), stuck), "");
  EXPECT_NE(watch.look(start + seconds(60), stuck), "");
  EXPECT_NE(watch.look(start + seconds(61), {.n_steps = 8, .n_running = 3}).find("goes on"),
            std::string::npos);
  EXPECT_EQ(watch.look(start + seconds(62), {.n_steps = 8, .n_running = 3}), "");
}

TEST(StallWatch, WaitingForReadersOrForRequestsIsNoStall) {
  StallWatch watch(seconds(1));
  core::TimePoint now{};
  for (const StallWatch::Look& calm :
       {StallWatch::Look{.n_steps = 7},
        {.n_steps = 7, .n_running = 2, .n_paused = 2, .n_waiting = 5}}) {
    for (int i = 0; i < 10; ++i) EXPECT_EQ(watch.look(now += seconds(10), calm), "");
    EXPECT_EQ(watch.idle(), seconds(0));
  }
  EXPECT_NE(watch.look(now += seconds(10), {.n_steps = 7, .n_waiting = 1}), "") << "it is stuck";
}

TEST(StallWatch, ZeroPatienceNeverTells) {
  StallWatch watch(seconds(0));
  EXPECT_EQ(watch.look(core::TimePoint{}, {.n_running = 1}), "");
  EXPECT_EQ(watch.look(core::TimePoint{} + seconds(1000), {.n_running = 1}), "");
}

}  // namespace
}  // namespace hadal::main
