#include "gateway/recipe/json_writer.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

namespace hadal::recipe {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101u;
constexpr uint64_t kHighs = 0x8080808080808080u;

// High bit of each byte of `x` that is zero; bytes above the first zero may be wrong.
constexpr uint64_t zero_bytes(uint64_t x) {
  return (x - kOnes) & ~x & kHighs;
}

// High bit of the bytes that need an escape, right up to the first one.
uint64_t escapes(uint64_t x) {
  const uint64_t quote = zero_bytes(x ^ (kOnes * '"'));
  const uint64_t backslash = zero_bytes(x ^ (kOnes * '\\'));
  const uint64_t control = (x - kOnes * 0x20) & ~x & kHighs;
  return quote | backslash | control;
}

constexpr char kHex[] = "0123456789abcdef";

void append_escape(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out.append("\\\"", 2);
      return;
    case '\\':
      out.append("\\\\", 2);
      return;
    case '\n':
      out.append("\\n", 2);
      return;
    case '\r':
      out.append("\\r", 2);
      return;
    case '\t':
      out.append("\\t", 2);
      return;
    case '\b':
      out.append("\\b", 2);
      return;
    case '\f':
      out.append("\\f", 2);
      return;
    default:
      break;
  }
  const char code[6] = {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
  out.append(code, sizeof code);
}

template <typename T>
void append_integer(std::string& out, T value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, static_cast<size_t>(end - digits));
}

template <typename T>
void append_float(std::string& out, T value) {
  if (!std::isfinite(value)) {
    out.append("null");
    return;
  }
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  out.append(text);
  if (text.find_first_of(".e") == std::string_view::npos) out.append(".0");
}

}  // namespace

size_t find_escape(std::string_view text, size_t from) {
  size_t i = from;
  while (i + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (const uint64_t hit = escapes(word); hit != 0) {
      if constexpr (std::endian::native == std::endian::little) {
        return i + static_cast<size_t>(std::countr_zero(hit)) / 8;
      }
      break;
    }
    i += 8;
  }
  for (; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == '"' || c == '\\') return i;
  }
  return text.size();
}

void append_escaped(std::string& out, std::string_view text) {
  size_t begin = 0;
  while (true) {
    const size_t end = find_escape(text, begin);
    out.append(text.data() + begin, end - begin);
    if (end == text.size()) return;
    append_escape(out, static_cast<unsigned char>(text[end]));
    begin = end + 1;
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out.push_back('"');
  append_escaped(out, text);
  out.push_back('"');
}

void append_quoted_or_null(std::string& out, std::string_view text) {
  if (text.empty()) {
    out.append("null");
  } else {
    append_quoted(out, text);
  }
}

void append_number(std::string& out, uint64_t value) {
  append_integer(out, value);
}
void append_number(std::string& out, int64_t value) {
  append_integer(out, value);
}
void append_number(std::string& out, float value) {
  append_float(out, value);
}
void append_number(std::string& out, double value) {
  append_float(out, value);
}
void append_bool(std::string& out, bool value) {
  out.append(value ? "true" : "false");
}

std::string one_line(std::string json) {
  constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
  for (const auto& [bytes, escape] : kEscapes) {
    for (size_t at = json.find(bytes); at != std::string::npos; at = json.find(bytes, at)) {
      json.replace(at, bytes.size(), escape);
    }
  }
  return json;
}

}  // namespace hadal::recipe
