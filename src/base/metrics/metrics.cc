#include "base/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "base/core/check.h"

namespace hadal::metrics {
namespace {

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// name{a="b",le="1"} value
void append_sample(std::string& out, std::string_view name, std::string_view suffix,
                   const Labels& common, const Labels& own, std::string_view le,
                   std::string_view value) {
  out += name;
  out += suffix;
  bool first = true;
  const auto label = [&](std::string_view key, std::string_view text) {
    out += first ? "{" : ",";
    first = false;
    out += key;
    out += "=\"";
    append_escaped(out, text, true);
    out += "\"";
  };
  for (const auto& [key, text] : common) label(key, text);
  for (const auto& [key, text] : own) label(key, text);
  if (!le.empty()) label("le", le);
  if (!first) out += "}";
  out += " ";
  out += value;
  out += "\n";
}

}  // namespace

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds.begin(), bounds.end()),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds.size() + 1)) {
  HADAL_CHECK(std::is_sorted(bounds_.begin(), bounds_.end()), "histogram bounds not ascending");
}

void Histogram::observe(double value, uint64_t times) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(at)].fetch_add(times, std::memory_order_relaxed);
  sum_.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t n = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) n += count_in(i);
  return n;
}

double Histogram::quantile(double q) const {
  const auto want = q * static_cast<double>(count());
  double below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    const auto here = static_cast<double>(count_in(i));
    if (here > 0 && below + here >= want) {
      const double low = i == 0 ? 0.0 : bounds_[i - 1];
      return low + (bounds_[i] - low) * (want - below) / here;
    }
    below += here;
  }
  return bounds_.empty() || below + static_cast<double>(count_in(bounds_.size())) == 0
             ? 0.0
             : bounds_.back();
}

Registry::Series& Registry::series(std::string_view name, std::string_view help, Kind kind,
                                   Labels labels) {
  auto family = std::find_if(families_.begin(), families_.end(),
                             [&](const Family& f) { return f.name == name; });
  if (family == families_.end()) {
    families_.push_back({std::string(name), std::string(help), kind, {}});
    family = std::prev(families_.end());
  }
  HADAL_CHECK(family->kind == kind, name);
  for (Series& s : family->series) {
    if (s.labels == labels) return s;
  }
  family->series.push_back({std::move(labels), nullptr, nullptr, nullptr});
  return family->series.back();
}

Counter& Registry::counter(std::string_view name, std::string_view help, Labels labels) {
  const std::scoped_lock lock(mutex_);
  Series& s = series(name, help, Kind::kCounter, std::move(labels));
  if (s.counter == nullptr) s.counter = &counters_.emplace_back();
  return *s.counter;
}

Gauge& Registry::gauge(std::string_view name, std::string_view help, Labels labels) {
  const std::scoped_lock lock(mutex_);
  Series& s = series(name, help, Kind::kGauge, std::move(labels));
  if (s.gauge == nullptr) s.gauge = &gauges_.emplace_back();
  return *s.gauge;
}

Histogram& Registry::histogram(std::string_view name, std::string_view help,
                               std::span<const double> bounds, Labels labels) {
  const std::scoped_lock lock(mutex_);
  Series& s = series(name, help, Kind::kHistogram, std::move(labels));
  if (s.histogram == nullptr) s.histogram = &histograms_.emplace_back(bounds);
  return *s.histogram;
}

std::string Registry::prometheus(const Labels& common) const {
  static constexpr std::array<std::string_view, 3> kKindNames{"counter", "gauge", "histogram"};
  const std::scoped_lock lock(mutex_);
  std::string out;
  for (const Family& family : families_) {
    out += fmt::format("# HELP {} ", family.name);
    append_escaped(out, family.help, false);
    out +=
        fmt::format("\n# TYPE {} {}\n", family.name, kKindNames[static_cast<size_t>(family.kind)]);
    for (const Series& s : family.series) {
      if (s.counter != nullptr)
        append_sample(out, family.name, "", common, s.labels, "",
                      fmt::format("{}", s.counter->value()));
      if (s.gauge != nullptr)
        append_sample(out, family.name, "", common, s.labels, "", number(s.gauge->value()));
      if (s.histogram == nullptr) continue;
      const Histogram& h = *s.histogram;
      uint64_t below = 0;
      for (size_t i = 0; i < h.bounds().size(); ++i) {
        below += h.count_in(i);
        append_sample(out, family.name, "_bucket", common, s.labels, number(h.bounds()[i]),
                      fmt::format("{}", below));
      }
      below += h.count_in(h.bounds().size());
      append_sample(out, family.name, "_bucket", common, s.labels, "+Inf",
                    fmt::format("{}", below));
      append_sample(out, family.name, "_sum", common, s.labels, "", number(h.sum()));
      append_sample(out, family.name, "_count", common, s.labels, "", fmt::format("{}", below));
    }
  }
  return out;
}

std::span<const double> latency_seconds_bounds() {
  static constexpr std::array<double, 22> kBounds{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                                  0.25,  0.5,   0.75, 1.0,  2.5,  5.0,  7.5,  10.0,
                                                  20.0,  40.0,  80.0, 160., 640., 2560.};
  return kBounds;
}

std::span<const double> token_count_bounds() {
  static constexpr std::array<double, 19> kBounds{
      1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 5e4, 1e5, 2e5, 5e5, 1e6};
  return kBounds;
}

}  // namespace hadal::metrics
