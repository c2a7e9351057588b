#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/grammar/int_range.h"
#include "engine/grammar/schema_compiler.h"

namespace hadal::grammar {

using Json = nlohmann::ordered_json;

bool SchemaCompiler::count(const Json& s, std::string_view word, const std::string& path,
                           uint64_t fallback, uint64_t& out) {
  out = fallback;
  if (!s.contains(std::string(word))) return true;
  const Json& value = s.at(std::string(word));
  if (!value.is_number() || value.get<double>() < 0 ||
      std::floor(value.get<double>()) != value.get<double>()) {
    fail("must be a count", path + "/" + std::string(word));
    return false;
  }
  out = value.get<double>() > 1e15 ? uint64_t{1'000'000'000'000'000} : value.get<uint64_t>();
  return true;
}

SchemaCompiler::Rule SchemaCompiler::number(const Json& s, bool whole, const std::string& path) {
  // Bounds of whole numbers, and the whole numbers between which others may lie.
  std::optional<double> low, high, low_pointed, high_pointed;
  bool bounded = false;
  int64_t step = 1;
  for (const std::string_view word : schema_words::kNumber) {
    if (!s.contains(std::string(word))) continue;
    const std::string at = path + "/" + std::string(word);
    if (!s.at(std::string(word)).is_number()) return fail("must be a number", at);
    const auto value = s.at(std::string(word)).get<double>();
    if (word == "multipleOf") {
      if (!whole || value < 1 || value > kMaxStep || std::floor(value) != value) {
        return cannot(word, path);
      }
      step = static_cast<int64_t>(value);
      continue;
    }
    bounded = true;
    const bool exclusive = word.starts_with("exclusive");
    if (word.ends_with("inimum")) {
      const double least = exclusive ? std::floor(value) + 1 : std::ceil(value);
      low = std::max(low.value_or(least), least);
      low_pointed = std::max(low_pointed.value_or(std::ceil(value)), std::ceil(value));
    } else {
      const double most = exclusive ? std::ceil(value) - 1 : std::floor(value);
      high = std::min(high.value_or(most), most);
      high_pointed = std::min(high_pointed.value_or(std::floor(value)), std::floor(value));
    }
  }
  if (!bounded && step == 1) return whole ? rules_.integer() : rules_.number();
  constexpr double kMost = static_cast<double>(kMaxWhole);
  const double from = std::max(low.value_or(-kMost), -kMost);
  const double to = std::min(high.value_or(kMost), kMost);
  const uint32_t rule = grammar_->add_rule();
  const uint32_t start = grammar_->start(rule);
  if (step > 1) {
    if (!add_multiples(start, from, to, step, bounded)) return cannot("multipleOf", path);
    return rule;
  }
  if (from <= to) {
    grammar_->mark_end(
        add_int_range(*grammar_, start, static_cast<int64_t>(from), static_cast<int64_t>(to)));
  }
  const bool pointed =
      !whole && add_pointed(start, low_pointed.value_or(-kMost), high_pointed.value_or(kMost));
  if (from > to && !pointed) {
    return fail("no number that can be written here is between minimum and maximum", path);
  }
  return rule;
}

// Numbers with a point between `low` and `high`, which are whole: i.f lies between i and i + 1, and
// -i.f below -i. The last digit is not 0, so that none is whole, and there are few enough that a
// double tells them from their neighbours.
bool SchemaCompiler::add_pointed(uint32_t start, double low, double high) {
  constexpr double kMost = 999'999'999;
  constexpr uint32_t kDigits = 6;
  Grammar& g = *grammar_;
  const uint32_t point = g.add_node(), end = g.add_node();
  g.mark_end(end);
  uint32_t at = g.literal(point, ".");
  for (uint32_t i = 0; i < kDigits; ++i) {
    g.bytes(at, '1', '9', end);
    const uint32_t next = g.add_node();
    g.bytes(at, '0', '9', next);
    at = next;
  }
  bool any = false;
  const auto add = [&](uint32_t node, double least, double most) {
    least = std::max(least, 0.0);
    most = std::min(most, kMost);
    if (least > most) return;
    any = true;
    g.free(add_int_range(g, node, static_cast<int64_t>(least), static_cast<int64_t>(most)), point);
  };
  add(start, low, high - 1);
  add(g.literal(start, "-"), -high, -low - 1);
  return any;
}

// Whole multiples of `step`: one by one between bounds, else by the remainder so far.
bool SchemaCompiler::add_multiples(uint32_t start, double from, double to, int64_t step,
                                   bool bounded) {
  constexpr uint32_t kMaxDigits = 15;
  Grammar& g = *grammar_;
  if (bounded) {
    const double first = std::ceil(from / static_cast<double>(step));
    const double last = std::floor(to / static_cast<double>(step));
    if (last - first >= kMaxCounted || last < first) return false;
    for (auto n = static_cast<int64_t>(first); n <= static_cast<int64_t>(last); ++n) {
      g.mark_end(g.literal(start, std::to_string(n * step)));
    }
    return true;
  }
  g.mark_end(g.literal(start, "0"));
  const uint32_t first = g.add_node();
  g.free(start, first);
  g.free(g.literal(start, "-"), first);
  std::vector<uint32_t> before = {first};  // by remainder; at first there is only one
  for (uint32_t n = 0; n < kMaxDigits; ++n) {
    std::vector<uint32_t> next;
    for (int64_t r = 0; r < step; ++r) next.push_back(g.add_node());
    for (size_t r = 0; r < before.size(); ++r) {
      for (uint32_t digit = n == 0 ? 1 : 0; digit <= 9; ++digit) {
        const auto byte = static_cast<uint8_t>('0' + digit);
        const size_t to_r = (r * 10 + digit) % static_cast<size_t>(step);
        g.bytes(before[r], byte, byte, next[to_r]);
      }
    }
    g.mark_end(next[0]);
    before = std::move(next);
  }
  return true;
}

}  // namespace hadal::grammar
