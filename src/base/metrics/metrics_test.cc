#include "base/metrics/metrics.h"

#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace hadal::metrics {
namespace {

TEST(Metrics, TextHasOneHeaderPerFamilyAndCumulativeBuckets) {
  Registry registry;
  registry.counter("a_total", "how\nmany", {{"k", "x\"y"}}).add(3);
  registry.counter("a_total", "ignored", {{"k", "z"}}).add(1);
  registry.gauge("g", "now").set(0.5);
  const std::array<double, 2> bounds{1.0, 2.0};
  Histogram& h = registry.histogram("h", "sizes", bounds);
  h.observe(0.5);
  h.observe(2.0);
  h.observe(9.0, 2);
  EXPECT_EQ(registry.prometheus({{"m", "1"}}),
            "# HELP a_total how\\nmany\n# TYPE a_total counter\n"
            "a_total{m=\"1\",k=\"x\\\"y\"} 3\na_total{m=\"1\",k=\"z\"} 1\n"
            "# HELP g now\n# TYPE g gauge\ng{m=\"1\"} 0.5\n"
            "# HELP h sizes\n# TYPE h histogram\n"
            "h_bucket{m=\"1\",le=\"1\"} 1\nh_bucket{m=\"1\",le=\"2\"} 2\n"
            "h_bucket{m=\"1\",le=\"+Inf\"} 4\nh_sum{m=\"1\"} 20.5\nh_count{m=\"1\"} 4\n");
}

TEST(Metrics, TheSameNameAndLabelsGiveTheSameObject) {
  Registry registry;
  Counter& a = registry.counter("a_total", "", {{"k", "1"}});
  registry.counter("a_total", "", {{"k", "2"}});
  EXPECT_EQ(&a, &registry.counter("a_total", "", {{"k", "1"}}));
}

TEST(Metrics, NothingIsLostBetweenThreads) {
  Registry registry;
  Counter& counter = registry.counter("c_total", "");
  Histogram& histogram = registry.histogram("h", "", latency_seconds_bounds());
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10000; ++i) {
          counter.add();
          histogram.observe(0.25);
        }
      });
    }
  }
  EXPECT_EQ(counter.value(), 40000u);
  EXPECT_EQ(histogram.count(), 40000u);
  EXPECT_DOUBLE_EQ(histogram.sum(), 10000.0);
}

TEST(Metrics, QuantileInterpolatesInsideABucket) {
  const std::array<double, 2> bounds{10.0, 20.0};
  Histogram h(bounds);
  for (int i = 0; i < 10; ++i) h.observe(15.0);
  EXPECT_DOUBLE_EQ(h.quantile(0.5), 15.0);
  EXPECT_DOUBLE_EQ(Histogram(bounds).quantile(0.5), 0.0);
}

}  // namespace
}  // namespace hadal::metrics
