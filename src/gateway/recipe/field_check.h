#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/core/result.h"
#include "gateway/recipe/json_value.h"

// Checks of the types of a body before anything is read from it.
namespace hadal::recipe {

// Where a value stands in a body. Lives on the stack while the checks descend; text is made only
// for an error.
struct Path {
  const Path* parent = nullptr;
  std::string_view key;
  int64_t index = -1;
  std::string text() const;
};

enum class Need : uint8_t {
  kRequired,  // absent or null is an error
  kPresent,   // absent is an error, null is fine
  kOptional,  // absent or null is fine
};

// Remembers the first mistake; later checks go on harmlessly. `at` is the path of the object that
// should hold `key`.
class FieldCheck {
 public:
  // `strict_integers`: 5.0 is no whole number, as deepseek-recipe has it; else it is, as JSON
  // Schema has it, and becomes 5 in the document.
  explicit FieldCheck(bool strict_integers = true) : strict_integers_(strict_integers) {}
  bool ok() const { return ok_; }
  core::Status status() const;
  void fail(const Path& at, std::string_view key, std::string_view problem);
  void fail_here(const Path& at, std::string_view problem);

  // The member if it is there and not null, after the check that it has the type. Most fields are
  // optional and absent: that is settled where it is asked, with the key's bit known to the
  // compiler.
  JsonValue string(JsonValue object, std::string_view key, const Path& at, Need need) {
    return is_left_out(object, key, need) ? JsonValue() : given_string(object, key, at, need);
  }
  JsonValue boolean(JsonValue object, std::string_view key, const Path& at, Need need) {
    return is_left_out(object, key, need) ? JsonValue() : given_boolean(object, key, at, need);
  }
  JsonValue number(JsonValue object, std::string_view key, const Path& at, Need need) {
    return is_left_out(object, key, need) ? JsonValue() : given_number(object, key, at, need);
  }
  JsonValue integer(JsonValue object, std::string_view key, const Path& at, Need need,
                    uint64_t largest) {
    return is_left_out(object, key, need) ? JsonValue()
                                          : given_integer(object, key, at, need, largest);
  }
  JsonValue object(JsonValue object, std::string_view key, const Path& at, Need need) {
    return is_left_out(object, key, need) ? JsonValue() : given_object(object, key, at, need);
  }
  JsonValue array(JsonValue object, std::string_view key, const Path& at, Need need) {
    return is_left_out(object, key, need) ? JsonValue() : given_array(object, key, at, need);
  }
  // A string out of a list.
  JsonValue word(JsonValue object, std::string_view key, const Path& at, Need need,
                 std::initializer_list<std::string_view> words);
  // Every element is a string.
  void all_strings(JsonValue array, const Path& at);
  bool is_object(JsonValue value, const Path& at);

 private:
  static bool is_left_out(JsonValue object, std::string_view key, Need need) {
    return need == Need::kOptional && !object.may_have(key);
  }
  JsonValue given_string(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue given_boolean(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue given_number(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue given_integer(JsonValue object, std::string_view key, const Path& at, Need need,
                          uint64_t largest);
  JsonValue given_object(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue given_array(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue member(JsonValue object, std::string_view key, const Path& at, Need need);
  const bool strict_integers_;
  bool ok_ = true;
  core::Error error_;
};

}  // namespace hadal::recipe
