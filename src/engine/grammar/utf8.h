#pragma once

#include <cstdint>
#include <string_view>

namespace hadal::grammar {

// The first character of a text; size 0: it is no UTF-8.
struct Utf8 {
  uint32_t code = 0;
  uint32_t size = 0;
};

inline Utf8 read_utf8(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const uint32_t size = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (size == 0 || text.size() < size) return {};
  uint32_t code = first & (0xFFu >> (size + 1));
  for (uint32_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[size] || code > 0x10FFFF || surrogate) return {};
  return {code, size};
}

}  // namespace hadal::grammar
