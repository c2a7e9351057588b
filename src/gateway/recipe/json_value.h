#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"

// A reader for JSON from clients. Stricter and more careful than most: it gives numbers as they
// were sent, keeps the order of keys, and refuses what cannot become text (docs/recipe.md, "JSON").
namespace hadal::recipe {

enum class JsonType : uint8_t {
  kNull,
  kFalse,
  kTrue,
  kUnsigned,
  kNegative,
  kDouble,
  kString,
  kArray,
  kObject
};

// One value of a document, in pre-order: the children of a container follow it. In an object every
// value stands right after its key, a kString.
struct JsonNode {
  JsonType type = JsonType::kNull;
  uint16_t key_bits = 0;  // object: key_bit() of each of its keys
  uint32_t size = 0;      // string: bytes; container: children (pairs for an object)
  uint32_t n_nodes =
      1;                // of the whole subtree, itself included: the next sibling is this + n_nodes
  uint32_t source = 0;  // offset of its first character in the parsed text
  union {
    uint64_t u;  // also, for a container: the offset of its end
    int64_t i;
    double d;
    const char* s;
  };
};

// One of 16 bits: most questions for a key that an object lacks end at its key_bits.
constexpr uint16_t key_bit(std::string_view key) {
  if (key.empty()) return 1;
  const auto at = [&](size_t i) { return static_cast<unsigned char>(key[i]); };
  const uint32_t mix = static_cast<uint32_t>(key.size()) + 7u * at(0) + 3u * at(key.size() / 2);
  return static_cast<uint16_t>(1u << ((mix ^ (mix >> 4)) & 15));
}

// A borrowed value; as cheap as a pointer. Valid while its JsonDoc and the parsed text live. A
// default-constructed one is "absent": every question is answered with no.
class JsonValue {
 public:
  JsonValue() = default;
  explicit JsonValue(const JsonNode* node) : node_(node) {}

  explicit operator bool() const { return node_ != nullptr; }
  const JsonNode* node() const { return node_; }
  bool is(JsonType type) const { return node_ != nullptr && node_->type == type; }
  bool is_null() const { return is(JsonType::kNull); }
  bool absent_or_null() const { return node_ == nullptr || is_null(); }
  bool is_string() const { return is(JsonType::kString); }
  bool is_object() const { return is(JsonType::kObject); }
  bool is_array() const { return is(JsonType::kArray); }
  bool is_bool() const { return is(JsonType::kTrue) || is(JsonType::kFalse); }
  bool is_true() const { return is(JsonType::kTrue); }
  bool is_number() const {
    return node_ != nullptr && node_->type >= JsonType::kUnsigned &&
           node_->type <= JsonType::kDouble;
  }
  std::string_view str() const {
    return is_string() ? std::string_view(node_->s, node_->size) : std::string_view();
  }
  double number() const;
  size_t size() const { return is_array() || is_object() ? node_->size : 0; }
  // Member `key`, or absent. Linear: objects of a request are small.
  JsonValue operator[](std::string_view key) const {
    return may_have(key) ? find(key) : JsonValue();
  }
  // False: it is no object, or one without `key`.
  bool may_have(std::string_view key) const {
    return is_object() && (node_->key_bits & key_bit(key)) != 0;
  }

  // Elements of an array; for an object, keys and values in turn.
  class Iterator {
   public:
    Iterator(const JsonNode* at, uint32_t left) : at_(at), left_(left) {}
    JsonValue operator*() const { return JsonValue(at_); }
    Iterator& operator++() {
      at_ += at_->n_nodes;
      --left_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return left_ != other.left_; }

   private:
    const JsonNode* at_;
    uint32_t left_;
  };
  Iterator begin() const { return {node_ == nullptr ? nullptr : node_ + 1, count()}; }
  Iterator end() const { return {nullptr, 0}; }

 private:
  JsonValue find(std::string_view key) const;  // of an object
  uint32_t count() const { return is_array() ? node_->size : is_object() ? 2 * node_->size : 0; }
  const JsonNode* node_ = nullptr;
};

// Calls f(key, value) for each member of an object.
template <typename F>
void for_each_member(JsonValue object, F&& f) {
  if (!object.is_object()) return;
  const JsonNode* at = object.node() + 1;
  for (uint32_t n = object.node()->size; n > 0; --n) {
    const std::string_view key(at->s, at->size);
    ++at;
    f(key, JsonValue(at));
    at += at->n_nodes;
  }
}

// A parsed document. Strings without escapes are views into the parsed text.
class JsonDoc {
 public:
  // Parses one whole document. Refused: a byte order mark, invalid UTF-8, NaN, numbers beyond f64,
  // lone surrogate escapes, control characters in strings, trailing commas or text, nesting over
  // `max_depth`. A repeated key keeps its first place and its last value. Memory: at most 32 bytes
  // for each byte of text. `text` must outlive the document.
  core::Status parse(std::string_view text, int max_depth = 127);
  // The text of an object or array of this document, as it was sent.
  std::string_view source(JsonValue container) const {
    const JsonNode& node = *container.node();
    return text_.substr(node.source, node.u - node.source);
  }
  JsonValue root() const { return JsonValue(nodes_.empty() ? nullptr : nodes_.data()); }
  std::string_view text() const { return text_; }

 private:
  friend class JsonParser;
  std::string_view text_;
  std::vector<JsonNode> nodes_;
  std::unique_ptr<char[]> unescaped_;  // strings that had escapes
  size_t unescaped_bytes_ = 0;
};

// Python's json.dumps as prompts have it: ", " and ": ", non-ASCII kept. Floats are written in the
// shortest form; negative exponents differ (1e-07 in V4.1, 1e-7 in V4).
enum class FloatStyle : uint8_t { kPython, kRust };
void append_json(std::string& out, JsonValue value, FloatStyle style);
// Without any space.
void append_json_compact(std::string& out, JsonValue value, FloatStyle style);
void append_json_string(std::string& out, std::string_view text);
void append_json_double(std::string& out, double value, FloatStyle style);

}  // namespace hadal::recipe
