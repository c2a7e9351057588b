#include "base/tokenizer/byte_level.h"

#include <array>

#include "base/tokenizer/utf8.h"

namespace hadal::tokenizer {
namespace {

constexpr bool is_printable(uint32_t b) {
  return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

constexpr std::array<uint16_t, 256> kChars = [] {
  std::array<uint16_t, 256> chars{};
  uint16_t next = 0x100;
  for (uint16_t b = 0; b < 256; ++b) chars[b] = is_printable(b) ? b : next++;
  return chars;
}();

constexpr std::array<int16_t, 0x180> kBytes = [] {
  std::array<int16_t, 0x180> bytes{};
  bytes.fill(-1);
  for (int16_t b = 0; b < 256; ++b) bytes[kChars[static_cast<size_t>(b)]] = b;
  return bytes;
}();

}  // namespace

uint32_t byte_to_char(uint8_t byte) {
  return kChars[byte];
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, kChars[static_cast<uint8_t>(c)]);
  return out;
}

bool from_byte_level(std::string_view text, std::string& bytes) {
  bytes.clear();
  while (!text.empty()) {
    const Utf8Char c = next_char(text);
    if (c.code >= kBytes.size() || kBytes[c.code] < 0) return false;
    bytes += static_cast<char>(kBytes[c.code]);
    text.remove_prefix(c.size);
  }
  return true;
}

}  // namespace hadal::tokenizer
