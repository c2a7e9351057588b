#include "engine/grammar/char_set.h"

#include <algorithm>

namespace hadal::grammar {

void CharSet::add(uint32_t low, uint32_t high) {
  if (low > high) return;
  // The ranges that touch the new one become part of it.
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), low,
                                      [](const Range& r, uint32_t at) { return r.high + 1 < at; });
  auto last = first;
  for (; last != ranges_.end() && last->low <= high + 1; ++last) {
    low = std::min(low, last->low);
    high = std::max(high, last->high);
  }
  ranges_.insert(ranges_.erase(first, last), {low, high});
}

void CharSet::add(const CharSet& other) {
  for (const Range& range : other.ranges_) add(range.low, range.high);
}

CharSet CharSet::complement() const {
  CharSet out;
  uint32_t from = 0;
  const auto gap = [&](uint32_t to) {  // [from, to) without surrogates
    if (from < 0xD800 && from < to) out.add(from, std::min(to, 0xD800u) - 1);
    if (to > 0xE000 && from < to) out.add(std::max(from, 0xE000u), to - 1);
  };
  for (const Range& range : ranges_) {
    gap(range.low);
    from = range.high + 1;
  }
  gap(kMaxCode + 1);
  return out;
}

CharSet CharSet::in_any_case() const {
  CharSet out = *this;
  for (uint32_t c = 'a'; c <= 'z'; ++c) {
    const uint32_t upper = c - 'a' + 'A';
    if (contains(c) || contains(upper)) {
      out.add(c, c);
      out.add(upper, upper);
    }
  }
  return out;
}

bool CharSet::contains(uint32_t code) const {
  const auto at = std::lower_bound(ranges_.begin(), ranges_.end(), code,
                                   [](const Range& r, uint32_t c) { return r.high < c; });
  return at != ranges_.end() && at->low <= code;
}

CharSet digits() {
  return {{'0', '9'}};
}
CharSet word_letters() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
CharSet white_space() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CharSet line_ends() {
  return {{0x0A, 0x0A}, {0x0D, 0x0D}, {0x2028, 0x2029}};
}
CharSet any_character() {
  return CharSet().complement();
}

}  // namespace hadal::grammar
