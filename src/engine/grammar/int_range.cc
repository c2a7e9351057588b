#include "engine/grammar/int_range.h"

#include <algorithm>
#include <string>

namespace hadal::grammar {
namespace {

class Digits {
 public:
  Digits(Grammar& grammar, uint32_t end) : g_(grammar), end_(end) {}

  // Numbers of one length.
  void range(uint32_t from, const std::string& low, const std::string& high, size_t at) {
    if (at == low.size()) return g_.free(from, end_);
    if (low[at] == high[at]) {
      range(digit(from, low[at], low[at]), low, high, at + 1);
      return;
    }
    at_least(digit(from, low[at], low[at]), low, at + 1);
    if (low[at] + 1 < high[at]) {
      any(digit(from, static_cast<char>(low[at] + 1), static_cast<char>(high[at] - 1)),
          low.size() - at - 1);
    }
    at_most(digit(from, high[at], high[at]), high, at + 1);
  }

 private:
  uint32_t digit(uint32_t from, char low, char high) {
    const uint32_t to = g_.add_node();
    g_.bytes(from, static_cast<uint8_t>(low), static_cast<uint8_t>(high), to);
    return to;
  }
  void any(uint32_t from, size_t n) {
    for (size_t i = 0; i < n; ++i) from = digit(from, '0', '9');
    g_.free(from, end_);
  }
  void at_least(uint32_t from, const std::string& low, size_t at) {
    if (at == low.size()) return g_.free(from, end_);
    if (low[at] < '9') {
      any(digit(from, static_cast<char>(low[at] + 1), '9'), low.size() - at - 1);
    }
    at_least(digit(from, low[at], low[at]), low, at + 1);
  }
  void at_most(uint32_t from, const std::string& high, size_t at) {
    if (at == high.size()) return g_.free(from, end_);
    if (high[at] > '0') {
      any(digit(from, '0', static_cast<char>(high[at] - 1)), high.size() - at - 1);
    }
    at_most(digit(from, high[at], high[at]), high, at + 1);
  }

  Grammar& g_;
  const uint32_t end_;
};

void add_positive(Grammar& g, uint32_t from, uint32_t end, int64_t low, int64_t high) {
  Digits digits(g, end);
  while (low <= high) {
    const std::string text = std::to_string(low);
    const int64_t last = std::min(high, int64_t{std::stoll(std::string(text.size(), '9'))});
    digits.range(from, text, std::to_string(last), 0);
    low = last + 1;
  }
}

}  // namespace

uint32_t add_int_range(Grammar& g, uint32_t from, int64_t low, int64_t high) {
  const uint32_t end = g.add_node();
  if (high >= 0) add_positive(g, from, end, std::max<int64_t>(low, 0), high);
  if (low < 0) add_positive(g, g.literal(from, "-"), end, std::max<int64_t>(-high, 1), -low);
  return end;
}

}  // namespace hadal::grammar
