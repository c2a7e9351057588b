#include "gateway/recipe/json_value.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "gateway/recipe/text_scan.h"

namespace hadal::recipe {

namespace {

template <typename T>
void append_integer(std::string& out, T value) {
  char digits[24];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, result.ptr);
}

}  // namespace

double JsonValue::number() const {
  if (is(JsonType::kUnsigned)) return static_cast<double>(node_->u);
  if (is(JsonType::kNegative)) return static_cast<double>(node_->i);
  return is(JsonType::kDouble) ? node_->d : 0.0;
}

JsonValue JsonValue::find(std::string_view key) const {
  const JsonNode* at = node_ + 1;
  for (uint32_t n = node_->size; n > 0; --n) {
    if (at->size == key.size() && std::memcmp(at->s, key.data(), key.size()) == 0) {
      return JsonValue(at + 1);
    }
    ++at;
    at += at->n_nodes;
  }
  return {};
}

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    const char* stop = find_string_stop(at, end);
    out.append(at, stop);
    if (stop == end) break;
    const char c = *stop;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default: {
        constexpr char kHex[] = "0123456789abcdef";
        out += "\\u00";
        out.push_back(kHex[(c >> 4) & 0xF]);
        out.push_back(kHex[c & 0xF]);
      }
    }
    at = stop + 1;
  }
  out.push_back('"');
}

void append_json_double(std::string& out, double value, FloatStyle style) {
  // Shortest digits d.ddd and a decimal exponent, laid out by the rule of each style.
  char buffer[40];
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  if (text[0] == '-') out.push_back('-');
  const int smallest = style == FloatStyle::kPython ? -4 : -5;
  const auto n_digits = static_cast<int>(digits.size());
  if (value == 0) {
    out += "0.0";
  } else if (exponent < smallest || exponent >= 16) {
    out.push_back(digits[0]);
    if (n_digits > 1) out.append(".").append(digits, 1);
    out.append(exponent < 0 ? "e-" : "e+");
    const int size = std::abs(exponent);
    if (size < 10 && style == FloatStyle::kPython) out.push_back('0');
    append_integer(out, size);
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else if (exponent + 1 >= n_digits) {
    out.append(digits).append(static_cast<size_t>(exponent + 1 - n_digits), '0').append(".0");
  } else {
    out.append(digits, 0, static_cast<size_t>(exponent + 1)).append(".");
    out.append(digits, static_cast<size_t>(exponent + 1));
  }
}

namespace {

struct Separators {
  std::string_view item, key;
};

void append_value(std::string& out, JsonValue value, FloatStyle style, Separators separators) {
  if (!value) {
    out += "null";
    return;
  }
  const JsonNode& node = *value.node();
  bool first = true;
  switch (node.type) {
    case JsonType::kNull:
      out += "null";
      return;
    case JsonType::kFalse:
      out += "false";
      return;
    case JsonType::kTrue:
      out += "true";
      return;
    case JsonType::kUnsigned:
      append_integer(out, node.u);
      return;
    case JsonType::kNegative:
      append_integer(out, node.i);
      return;
    case JsonType::kDouble:
      append_json_double(out, node.d, style);
      return;
    case JsonType::kString:
      append_json_string(out, value.str());
      return;
    case JsonType::kArray:
      out.push_back('[');
      for (const JsonValue element : value) {
        if (!first) out += separators.item;
        first = false;
        append_value(out, element, style, separators);
      }
      out.push_back(']');
      return;
    case JsonType::kObject:
      out.push_back('{');
      for_each_member(value, [&](std::string_view key, JsonValue member) {
        if (!first) out += separators.item;
        first = false;
        append_json_string(out, key);
        out += separators.key;
        append_value(out, member, style, separators);
      });
      out.push_back('}');
      return;
  }
}

}  // namespace

void append_json(std::string& out, JsonValue value, FloatStyle style) {
  append_value(out, value, style, {", ", ": "});
}

void append_json_compact(std::string& out, JsonValue value, FloatStyle style) {
  append_value(out, value, style, {",", ":"});
}

}  // namespace hadal::recipe
