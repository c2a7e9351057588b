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

  // The member if it is there and not null, after the check that it has the type.
  JsonValue string(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue boolean(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue number(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue integer(JsonValue object, std::string_view key, const Path& at, Need need,
                    uint64_t largest);
  JsonValue object(JsonValue object, std::string_view key, const Path& at, Need need);
  JsonValue array(JsonValue object, std::string_view key, const Path& at, Need need);
  // A string out of a list.
  JsonValue word(JsonValue object, std::string_view key, const Path& at, Need need,
                 std::initializer_list<std::string_view> words);
  // Every element is a string.
  void all_strings(JsonValue array, const Path& at);
  bool is_object(JsonValue value, const Path& at);

 private:
  JsonValue member(JsonValue object, std::string_view key, const Path& at, Need need);
  const bool strict_integers_;
  bool ok_ = true;
  core::Error error_;
};

}  // namespace hadal::recipe
