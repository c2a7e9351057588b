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
  std::optional<double> low, high;
  bool bounded = false;
  for (const std::string_view word : schema_words::kNumber) {
    if (!s.contains(std::string(word))) continue;
    if (!s.at(std::string(word)).is_number())
      return fail("must be a number", path + "/" + std::string(word));
    const auto value = s.at(std::string(word)).get<double>();
    if (word == "multipleOf") {
      if (!(whole && value == 1)) return cannot(word, path);
      continue;
    }
    bounded = true;
    const bool exclusive = word.starts_with("exclusive");
    if (word.ends_with("inimum")) {
      const double at = whole ? (exclusive ? std::floor(value) + 1 : std::ceil(value)) : value;
      if (!whole && exclusive) return cannot(word, path);
      low = std::max(low.value_or(at), at);
    } else {
      const double at = whole ? (exclusive ? std::ceil(value) - 1 : std::floor(value)) : value;
      if (!whole && exclusive) return cannot(word, path);
      high = std::min(high.value_or(at), at);
    }
  }
  if (!bounded) return whole ? rules_.integer() : rules_.number();
  // Bounds of numbers with a point are kept by whole numbers alone: fewer texts, all valid.
  constexpr double kMost = static_cast<double>(kMaxWhole);
  const double from = std::max(std::ceil(low.value_or(-kMost)), -kMost);
  const double to = std::min(std::floor(high.value_or(kMost)), kMost);
  if (from > to) {
    return fail("no whole number within reach is between minimum and maximum", path);
  }
  const uint32_t rule = grammar_->add_rule();
  grammar_->mark_end(add_int_range(*grammar_, grammar_->start(rule), static_cast<int64_t>(from),
                                   static_cast<int64_t>(to)));
  return rule;
}

}  // namespace hadal::grammar
