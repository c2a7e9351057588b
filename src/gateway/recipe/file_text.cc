#include "gateway/recipe/file_text.h"

#include <array>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "gateway/recipe/request_rules.h"
#include "gateway/recipe/text_scan.h"

namespace hadal::recipe {

namespace {

constexpr size_t kMaxFileBytes = 32u << 20;

constexpr std::array<int8_t, 256> make_digits() {
  std::array<int8_t, 256> digits{};
  for (int8_t& digit : digits) digit = -1;
  for (int i = 0; i < 26; ++i) {
    digits[static_cast<size_t>('A' + i)] = static_cast<int8_t>(i);
    digits[static_cast<size_t>('a' + i)] = static_cast<int8_t>(26 + i);
  }
  for (int i = 0; i < 10; ++i) digits[static_cast<size_t>('0' + i)] = static_cast<int8_t>(52 + i);
  digits['+'] = 62;
  digits['/'] = 63;
  return digits;
}
constexpr std::array<int8_t, 256> kDigits = make_digits();

}  // namespace

bool decode_base64(std::string_view text, size_t max_bytes, std::string& out) {
  out.clear();
  if (text.size() / 4 * 3 > max_bytes + 3) return false;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int n_digits = 0, n_padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r') continue;
    if (c == '=') {
      ++n_padding;
      continue;
    }
    const int8_t digit = kDigits[static_cast<unsigned char>(c)];
    if (digit < 0 || n_padding > 0) return false;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    if (++n_digits == 4) {
      out += static_cast<char>(bits >> 16);
      out += static_cast<char>(bits >> 8);
      out += static_cast<char>(bits);
      bits = 0;
      n_digits = 0;
    }
  }
  if (n_digits == 1 || n_padding > 2) return false;
  if (n_digits == 2) out += static_cast<char>(bits >> 4);
  if (n_digits == 3) {
    out += static_cast<char>(bits >> 10);
    out += static_cast<char>(bits >> 2);
  }
  return true;
}

core::Result<std::string_view> file_text(std::string_view data, std::string_view name,
                                         const std::string& path, RequestText& text) {
  if (data.empty()) {
    return invalid("the file has no file_data; files by id or address are not supported", path);
  }
  std::string_view type = "text/plain";
  if (data.starts_with("data:")) {
    const size_t comma = data.find(',');
    if (comma == std::string_view::npos || !data.substr(0, comma).ends_with(";base64")) {
      return invalid("file_data must be a base64 data URL", path);
    }
    type = data.substr(5, data.find(';') - 5);
    data.remove_prefix(comma + 1);
  }
  const bool is_text = type.starts_with("text/") || type == "application/json" ||
                       type == "application/xml" || type == "application/x-yaml" ||
                       type == "application/javascript";
  if (!is_text) {
    return invalid(
        fmt::format("a file of type {} cannot be read; text files can", type.substr(0, 100)), path);
  }
  std::string bytes;
  if (!decode_base64(data, kMaxFileBytes, bytes)) {
    return invalid("file_data is not base64, or larger than 32 MiB", path);
  }
  if (!is_valid_utf8(bytes)) return invalid("the file is not UTF-8 text", path);
  std::string shown = name.empty() ? std::string() : fmt::format("[File: {}]\n", name);
  shown += bytes;
  return text.keep(std::move(shown));
}

}  // namespace hadal::recipe
