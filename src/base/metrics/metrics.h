#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hadal::metrics {

// Only grows. Any thread, no lock.
class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// A value of this moment. Any thread, no lock.
class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double delta) { value_.fetch_add(delta, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0.0};
};

// Counts of observations by size. Any thread, no lock; a reader may see a sum that is ahead of the
// counts by the observations in progress.
class Histogram {
 public:
  // `bounds`: upper ends of the buckets, ascending; one more bucket takes what is above.
  explicit Histogram(std::span<const double> bounds);
  void observe(double value) { observe(value, 1); }
  void observe(double value, uint64_t times);

  std::span<const double> bounds() const { return bounds_; }
  uint64_t count_in(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  uint64_t count() const;
  // The value below which the share `q` of the observations lies, by interpolation; 0 if none.
  double quantile(double q) const;

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0.0};
};

using Labels = std::vector<std::pair<std::string, std::string>>;

// Owns all metrics of one program and writes them as Prometheus text. Metrics are made once, at
// construction of those who count, and live as long as the registry; asking again for the same name
// and labels gives the same object.
class Registry {
 public:
  Counter& counter(std::string_view name, std::string_view help, Labels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, Labels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, std::span<const double> bounds,
                       Labels labels = {});
  // Text exposition format 0.0.4. Every sample carries `common` in front of its own labels.
  std::string prometheus(const Labels& common = {}) const;

 private:
  enum class Kind : uint8_t { kCounter, kGauge, kHistogram };
  struct Series {
    Labels labels;
    Counter* counter = nullptr;
    Gauge* gauge = nullptr;
    Histogram* histogram = nullptr;
  };
  struct Family {
    std::string name, help;
    Kind kind;
    std::vector<Series> series;
  };
  Series& series(std::string_view name, std::string_view help, Kind kind, Labels labels);

  mutable std::mutex mutex_;  // guards the lists, never the values
  std::vector<Family> families_;
  std::deque<Counter> counters_;
  std::deque<Gauge> gauges_;
  std::deque<Histogram> histograms_;
};

// Bucket bounds in seconds and in tokens, as vLLM has them, so that dashboards made for it work.
std::span<const double> latency_seconds_bounds();
std::span<const double> token_count_bounds();

}  // namespace hadal::metrics
