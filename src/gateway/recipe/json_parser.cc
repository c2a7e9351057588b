#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "gateway/recipe/json_value.h"
#include "gateway/recipe/text_scan.h"

// One pass over the text; values go to a flat list in the order they stand in. Strings are copied
// only when they hold escapes.
namespace hadal::recipe {

namespace {

// Objects up to this size look for repeated keys pair by pair, larger ones by hash.
constexpr uint32_t kSmallObject = 12;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

class JsonParser {
 public:
  JsonParser(std::string_view text, int max_depth, JsonDoc& doc)
      : begin_(text.data()),
        at_(text.data()),
        end_(text.data() + text.size()),
        nodes_(doc.nodes_),
        doc_(doc),
        max_depth_(max_depth),
        move_budget_(16 * text.size() + (1u << 20)) {
    nodes_.clear();
    nodes_.reserve(std::min<size_t>(text.size() / 24 + 16, 1u << 20));
  }

  core::Status run() {
    skip_space();
    if (parse_value(1)) {
      skip_space();
      if (at_ != end_) fail("text after the end of the document");
    }
    if (problem_.empty()) return {};
    nodes_.clear();
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("the body is not valid JSON: {} at byte {}", problem_, at_ - begin_)};
  }

 private:
  bool fail(std::string_view problem) {
    if (problem_.empty()) problem_ = problem;
    return false;
  }

  void skip_space() {
    while (at_ != end_ && is_space(*at_)) ++at_;
  }

  uint32_t add(JsonType type) {
    JsonNode node;
    node.type = type;
    node.source = static_cast<uint32_t>(at_ - begin_);
    node.u = 0;
    nodes_.push_back(node);
    return static_cast<uint32_t>(nodes_.size() - 1);
  }

  bool parse_word(std::string_view word, JsonType type) {
    if (static_cast<size_t>(end_ - at_) < word.size() ||
        std::memcmp(at_, word.data(), word.size()) != 0) {
      return fail("unexpected character");
    }
    add(type);
    at_ += word.size();
    return true;
  }

  bool parse_value(int depth) {
    if (at_ == end_) return fail("unexpected end");
    switch (*at_) {
      case '"':
        return parse_string();
      case '{':
        return parse_object(depth);
      case '[':
        return parse_array(depth);
      case 't':
        return parse_word("true", JsonType::kTrue);
      case 'f':
        return parse_word("false", JsonType::kFalse);
      case 'n':
        return parse_word("null", JsonType::kNull);
      default:
        return parse_number();
    }
  }

  bool parse_array(int depth) {
    if (depth > max_depth_) return fail("nesting too deep");
    const uint32_t self = add(JsonType::kArray);
    ++at_;
    uint32_t count = 0;
    skip_space();
    if (at_ != end_ && *at_ == ']') {
      ++at_;
      close(self, 0);
      return true;
    }
    while (true) {
      if (!parse_value(depth + 1)) return false;
      ++count;
      skip_space();
      if (at_ == end_) return fail("unexpected end of an array");
      if (*at_ == ']') break;
      if (*at_ != ',') return fail("expected ',' or ']'");
      ++at_;
      skip_space();
    }
    ++at_;
    close(self, count);
    return true;
  }

  bool parse_object(int depth) {
    if (depth > max_depth_) return fail("nesting too deep");
    const uint32_t self = add(JsonType::kObject);
    ++at_;
    uint32_t count = 0;
    skip_space();
    if (at_ != end_ && *at_ == '}') {
      ++at_;
      close(self, 0);
      return true;
    }
    while (true) {
      if (at_ == end_ || *at_ != '"') return fail("expected a key");
      const auto key = static_cast<uint32_t>(nodes_.size());
      if (!parse_string()) return false;
      nodes_[self].key_bits =
          static_cast<uint16_t>(nodes_[self].key_bits | key_bit(string_at(key)));
      skip_space();
      if (at_ == end_ || *at_ != ':') return fail("expected ':'");
      ++at_;
      skip_space();
      if (!parse_value(depth + 1)) return false;
      ++count;
      skip_space();
      if (at_ == end_) return fail("unexpected end of an object");
      if (*at_ == '}') break;
      if (*at_ != ',') return fail("expected ',' or '}'");
      ++at_;
      skip_space();
    }
    ++at_;
    close(self, count);
    return !has_repeated_key(self) || merge_repeated_keys(self);
  }

  void close(uint32_t self, uint32_t count) {
    nodes_[self].size = count;
    nodes_[self].n_nodes = static_cast<uint32_t>(nodes_.size()) - self;
    nodes_[self].u = static_cast<uint64_t>(at_ - begin_);
  }

  bool parse_number() {
    const char* start = at_;
    const char* p = at_;
    const bool negative = p != end_ && *p == '-';
    if (negative) ++p;
    if (p == end_ || !is_digit(*p)) return fail("unexpected character");
    if (*p == '0' && p + 1 != end_ && is_digit(p[1])) return fail("a number with a leading zero");
    while (p != end_ && is_digit(*p)) ++p;
    bool integer = true;
    if (p != end_ && *p == '.') {
      integer = false;
      if (++p == end_ || !is_digit(*p)) return fail("a number without digits after the point");
      while (p != end_ && is_digit(*p)) ++p;
    }
    if (p != end_ && (*p == 'e' || *p == 'E')) {
      integer = false;
      ++p;
      if (p != end_ && (*p == '+' || *p == '-')) ++p;
      if (p == end_ || !is_digit(*p)) return fail("a number without an exponent");
      while (p != end_ && is_digit(*p)) ++p;
    }
    const uint32_t self = add(JsonType::kDouble);
    at_ = p;
    if (integer && set_integer(nodes_[self], start, p, negative)) return true;
    return set_double(nodes_[self], start, p);
  }

  // Integers of 64 bits are exact; -0 and larger ones are doubles.
  static bool set_integer(JsonNode& node, const char* start, const char* end, bool negative) {
    if (negative) {
      int64_t value = 0;
      if (std::from_chars(start, end, value).ec != std::errc() || value == 0) return false;
      node.type = JsonType::kNegative;
      node.i = value;
      return true;
    }
    uint64_t value = 0;
    if (std::from_chars(start, end, value).ec != std::errc()) return false;
    node.type = JsonType::kUnsigned;
    node.u = value;
    return true;
  }

  bool set_double(JsonNode& node, const char* start, const char* end) {
    double value = 0;
    const auto result = std::from_chars(start, end, value);
    if (result.ec == std::errc::result_out_of_range) {
      if (!is_tiny(start, end)) return fail("a number beyond the range of 64-bit floats");
      value = *start == '-' ? -0.0 : 0.0;
    }
    node.d = value;
    return true;
  }

  // Out of range: below the smallest double, or above the largest?
  static bool is_tiny(const char* start, const char* end) {
    const char* exponent = std::find_if(start, end, [](char c) { return c == 'e' || c == 'E'; });
    const char* digits = *start == '-' ? start + 1 : start;
    const char* point = std::find(digits, exponent, '.');
    int64_t position = point - digits;  // of the first significant digit
    if (*digits == '0') {
      position = 0;
      for (const char* p = point; ++p < exponent && *p == '0';) --position;
    }
    if (exponent == end) return position <= 0;
    const bool minus = exponent[1] == '-';
    int64_t value = 0;
    for (const char* p = exponent + 1; p != end; ++p) {
      if (is_digit(*p)) value = std::min<int64_t>(value * 10 + (*p - '0'), int64_t{1} << 40);
    }
    return position + (minus ? -value : value) <= 0;
  }

  bool parse_string() {
    const uint32_t self = add(JsonType::kString);
    const char* start = ++at_;
    at_ = find_string_stop(at_, end_);
    if (at_ != end_ && *at_ == '"') {
      nodes_[self].s = start;
      nodes_[self].size = static_cast<uint32_t>(at_ - start);
      ++at_;
      return true;
    }
    return parse_escaped_string(self, start);
  }

  bool parse_escaped_string(uint32_t self, const char* start) {
    if (doc_.unescaped_ == nullptr) {
      // An escape is longer than what it stands for, so the text's size is always enough.
      doc_.unescaped_.reset(new char[static_cast<size_t>(end_ - begin_)]);
      doc_.unescaped_bytes_ = 0;
    }
    char* const first = doc_.unescaped_.get() + doc_.unescaped_bytes_;
    char* out = first;
    while (true) {
      const auto plain = static_cast<size_t>(at_ - start);
      std::memcpy(out, start, plain);
      out += plain;
      if (at_ == end_) return fail("unexpected end of a string");
      if (*at_ == '"') break;
      if (*at_ != '\\') return fail("a control character in a string");
      if (!parse_escape(out)) return false;
      start = at_;
      at_ = find_string_stop(at_, end_);
    }
    ++at_;
    nodes_[self].s = first;
    nodes_[self].size = static_cast<uint32_t>(out - first);
    doc_.unescaped_bytes_ += static_cast<size_t>(out - first);
    return true;
  }

  bool parse_escape(char*& out) {
    if (end_ - at_ < 2) return fail("unexpected end of a string");
    const char c = at_[1];
    at_ += 2;
    switch (c) {
      case 'n':
        *out++ = '\n';
        return true;
      case '"':
      case '\\':
      case '/':
        *out++ = c;
        return true;
      case 't':
        *out++ = '\t';
        return true;
      case 'r':
        *out++ = '\r';
        return true;
      case 'b':
        *out++ = '\b';
        return true;
      case 'f':
        *out++ = '\f';
        return true;
      case 'u':
        return parse_unicode_escape(out);
      default:
        at_ -= 1;
        return fail("an unknown escape");
    }
  }

  bool parse_hex4(uint32_t& value) {
    if (end_ - at_ < 4) return fail("unexpected end of a string");
    value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = at_[i];
      const int digit = is_digit(c)              ? c - '0'
                        : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                        : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                 : -1;
      if (digit < 0) return fail("an escape that is not hexadecimal");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    at_ += 4;
    return true;
  }

  bool parse_unicode_escape(char*& out) {
    uint32_t code = 0;
    if (!parse_hex4(code)) return false;
    if (code >= 0xDC00 && code <= 0xDFFF) return fail("a lone surrogate escape");
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return fail("a lone surrogate escape");
      at_ += 2;
      uint32_t low = 0;
      if (!parse_hex4(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return fail("a lone surrogate escape");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code < 0x80) {
      *out++ = static_cast<char>(code);
    } else if (code < 0x800) {
      *out++ = static_cast<char>(0xC0 | (code >> 6));
      *out++ = static_cast<char>(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      *out++ = static_cast<char>(0xE0 | (code >> 12));
      *out++ = static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      *out++ = static_cast<char>(0x80 | (code & 0x3F));
    } else {
      *out++ = static_cast<char>(0xF0 | (code >> 18));
      *out++ = static_cast<char>(0x80 | ((code >> 12) & 0x3F));
      *out++ = static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      *out++ = static_cast<char>(0x80 | (code & 0x3F));
    }
    return true;
  }

  std::vector<uint32_t> key_nodes(uint32_t object) const {
    std::vector<uint32_t> keys(nodes_[object].size);
    uint32_t at = object + 1;
    for (uint32_t& key : keys) {
      key = at;
      at += 1 + nodes_[at + 1].n_nodes;
    }
    return keys;
  }

  std::string_view string_at(uint32_t node) const { return {nodes_[node].s, nodes_[node].size}; }

  bool has_repeated_key(uint32_t object) const {
    const uint32_t count = nodes_[object].size;
    if (count < 2) return false;
    if (count <= kSmallObject) {
      uint32_t keys[kSmallObject];
      uint32_t at = object + 1;
      for (uint32_t i = 0; i < count; ++i) {
        for (uint32_t j = 0; j < i; ++j) {
          if (nodes_[keys[j]].size == nodes_[at].size && string_at(keys[j]) == string_at(at)) {
            return true;
          }
        }
        keys[i] = at;
        at += 1 + nodes_[at + 1].n_nodes;
      }
      return false;
    }
    std::vector<std::string_view> keys;
    keys.reserve(count);
    for (const uint32_t key : key_nodes(object)) keys.push_back(string_at(key));
    std::sort(keys.begin(), keys.end());
    return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
  }

  // Keeps of each key the first place and the last value. Rebuilding costs a copy of the object, so
  // deep nests of repeated keys are refused before they cost more than the text is worth.
  bool merge_repeated_keys(uint32_t object) {
    const uint32_t n_nodes = nodes_[object].n_nodes;
    if (n_nodes > move_budget_) return fail("too many repeated keys");
    move_budget_ -= n_nodes;
    std::unordered_map<std::string_view, uint32_t> last;
    const std::vector<uint32_t> keys = key_nodes(object);
    for (const uint32_t key : keys) last[string_at(key)] = key;
    std::vector<JsonNode> merged;
    merged.reserve(n_nodes);
    uint32_t count = 0;
    for (const uint32_t key : keys) {
      const auto found = last.find(string_at(key));
      if (found == last.end()) continue;  // written already
      const uint32_t value = found->second + 1;
      merged.push_back(nodes_[key]);
      merged.insert(merged.end(), nodes_.begin() + value,
                    nodes_.begin() + value + nodes_[value].n_nodes);
      last.erase(found);
      ++count;
    }
    nodes_.resize(object + 1);
    nodes_.insert(nodes_.end(), merged.begin(), merged.end());
    close(object, count);
    return true;
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  std::vector<JsonNode>& nodes_;
  JsonDoc& doc_;
  const int max_depth_;
  std::string_view problem_;
  size_t move_budget_;
};

core::Status JsonDoc::parse(std::string_view text, int max_depth) {
  text_ = text;
  nodes_.clear();
  unescaped_.reset();
  if (text.size() >= (size_t{1} << 31)) {
    return core::Error{core::Code::kTooLarge, "the body is larger than 2 GiB"};
  }
  if (!is_valid_utf8(text)) {
    return core::Error{core::Code::kInvalidRequest, "the body is not valid UTF-8"};
  }
  return JsonParser(text, max_depth, *this).run();
}

}  // namespace hadal::recipe
