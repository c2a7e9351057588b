#include "compute/backends/cpu/thread_pool.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace hadal::cpu {
namespace {

TEST(ThreadPool, RunsEveryLaneOnceAndBarriersOrderTheirWrites) {
  for (const int n : {1, 2, 5}) {
    ThreadPool pool({.n_threads = n, .scratch_bytes = 4096, .spin_us = 20});
    std::vector<int> slots(static_cast<size_t>(n));
    for (int round = 1; round <= 200; ++round) {
      std::atomic<int> wrong{0};
      pool.run([&](const Lane& lane) {
        lane.scratch[0] = std::byte{1};
        for (int step = 0; step < 3; ++step) {
          slots[static_cast<size_t>(lane.index)] = round * 10 + step;
          lane.barrier();
          for (const int slot : slots) wrong += slot != round * 10 + step;
          lane.barrier();
        }
      });
      ASSERT_EQ(wrong.load(), 0);
    }
  }
}

TEST(ThreadPool, SharesAreWholeGrainsAndCoverTheRange) {
  for (const int lanes : {1, 2, 3, 8}) {
    for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
      int64_t at = 0;
      for (int i = 0; i < lanes; ++i) {
        const Range r = share(n, Lane{.index = i, .count = lanes}, 16);
        EXPECT_EQ(r.begin, at);
        EXPECT_TRUE(r.begin % 16 == 0 || r.begin == n);
        at = r.end;
      }
      EXPECT_EQ(at, n);
    }
  }
}

}  // namespace
}  // namespace hadal::cpu
