#include "gateway/recipe/custom_input.h"

#include <cstdint>
#include <optional>

namespace hadal::recipe {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

void append_character(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 63)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 63)));
    out.push_back(static_cast<char>(0x80 | (code & 63)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (code >> 18)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 63)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 63)));
    out.push_back(static_cast<char>(0x80 | (code & 63)));
  }
}

std::optional<uint32_t> hex4(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits) {
    uint32_t digit;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
      digit = static_cast<uint32_t>((c | 32) - 'a') + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return value;
}

std::optional<char> simple_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    default:
      return std::nullopt;
  }
}

// Reads the escape at the start of `text`; returns its size, 0 if more bytes are needed. A bad
// escape is passed on as it is.
size_t read_escape(std::string_view text, std::string& out) {
  if (text.size() < 2) return 0;
  if (const auto plain = simple_escape(text[1])) {
    out.push_back(*plain);
    return 2;
  }
  if (text[1] != 'u') {
    out.append(text.substr(0, 2));
    return 2;
  }
  if (text.size() < 6) return 0;
  const auto high = hex4(text.substr(2, 4));
  if (!high.has_value()) {
    out.append(text.substr(0, 2));
    return 2;
  }
  if (*high < 0xD800 || *high > 0xDFFF) {
    append_character(out, *high);
    return 6;
  }
  if (*high < 0xDC00) {
    if (text.size() < 8 && std::string_view("\\u").starts_with(text.substr(6))) return 0;
    if (text.substr(6).starts_with("\\u")) {
      if (text.size() < 12) return 0;
      const auto low = hex4(text.substr(8, 4));
      if (low.has_value() && *low >= 0xDC00 && *low <= 0xDFFF) {
        append_character(out, 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00));
        return 12;
      }
    }
  }
  out.append(text.substr(0, 6));
  return 6;
}

}  // namespace

void CustomInput::feed(std::string_view arguments, std::string& out) {
  if (state_ == State::kDone) return;
  if (state_ == State::kRaw) {
    out.append(arguments);
    return;
  }
  held_.append(arguments);
  if (state_ == State::kPrefix) read_prefix(out);
  if (state_ == State::kText) read_text(out);
}

void CustomInput::read_prefix(std::string& out) {
  constexpr std::string_view kParts[] = {"{", "\"input\"", ":", "\""};
  size_t at = 0;
  for (const std::string_view part : kParts) {
    while (at < held_.size() && is_space(held_[at])) ++at;
    const std::string_view rest = std::string_view(held_).substr(at, part.size());
    if (rest != part) {
      if (part.starts_with(rest)) return;  // more to come
      out.append(held_);
      held_.clear();
      state_ = State::kRaw;
      return;
    }
    at += part.size();
  }
  held_.erase(0, at);
  state_ = State::kText;
}

void CustomInput::read_text(std::string& out) {
  size_t at = 0;
  const std::string_view text = held_;
  while (at < text.size()) {
    const size_t special = text.find_first_of("\"\\", at);
    if (special == std::string_view::npos) {
      out.append(text.substr(at));
      at = text.size();
      break;
    }
    out.append(text.substr(at, special - at));
    at = special;
    if (text[at] == '"') {
      state_ = State::kDone;
      held_.clear();
      return;
    }
    const size_t size = read_escape(text.substr(at), out);
    if (size == 0) break;
    at += size;
  }
  held_.erase(0, at);
}

void CustomInput::finish(std::string& out) {
  out.append(held_);
  held_.clear();
  state_ = State::kDone;
}

}  // namespace hadal::recipe
