#include "gateway/recipe/field_check.h"

#include <cmath>

#include <fmt/format.h>

namespace hadal::recipe {
namespace {

// 5.0 -> 5. A document's nodes are made as values that are not const, and its reader is the only
// one who holds it while types are checked.
void make_whole(JsonValue value) {
  auto& node = const_cast<JsonNode&>(*value.node());
  const double number = node.d;
  if (!(number >= 0 && number <= 9007199254740992.0) || number != std::floor(number)) return;
  node.type = JsonType::kUnsigned;
  node.u = static_cast<uint64_t>(number);
}

}  // namespace

std::string Path::text() const {
  std::string text = parent == nullptr ? std::string() : parent->text();
  if (index >= 0) {
    text += fmt::format("[{}]", index);
  } else if (!key.empty()) {
    if (!text.empty()) text += '.';
    text += key.substr(0, 200);
  }
  return text;
}

core::Status FieldCheck::status() const {
  if (ok_) return {};
  return error_;
}

void FieldCheck::fail(const Path& at, std::string_view key, std::string_view problem) {
  fail_here(Path{&at, key}, problem);
}

void FieldCheck::fail_here(const Path& at, std::string_view problem) {
  if (!ok_) return;
  ok_ = false;
  const std::string path = at.text();
  error_ = {
      core::Code::kInvalidRequest,
      path.empty() ? fmt::format("the body {}", problem) : fmt::format("`{}` {}", path, problem),
      path};
}

JsonValue FieldCheck::member(JsonValue object, std::string_view key, const Path& at, Need need) {
  const JsonValue value = object[key];
  if (!value) {
    if (need != Need::kOptional) fail(at, key, "is missing");
    return {};
  }
  if (value.is_null()) {
    if (need == Need::kRequired) fail(at, key, "must not be null");
    return {};
  }
  return value;
}

JsonValue FieldCheck::given_string(JsonValue object, std::string_view key, const Path& at,
                                   Need need) {
  const JsonValue value = member(object, key, at, need);
  if (!value || value.is_string()) return value;
  fail(at, key, "must be a string");
  return {};
}

JsonValue FieldCheck::given_boolean(JsonValue object, std::string_view key, const Path& at,
                                    Need need) {
  const JsonValue value = member(object, key, at, need);
  if (!value || value.is_bool()) return value;
  fail(at, key, "must be true or false");
  return {};
}

JsonValue FieldCheck::given_number(JsonValue object, std::string_view key, const Path& at,
                                   Need need) {
  const JsonValue value = member(object, key, at, need);
  if (!value || value.is_number()) return value;
  fail(at, key, "must be a number");
  return {};
}

JsonValue FieldCheck::given_integer(JsonValue object, std::string_view key, const Path& at,
                                    Need need, uint64_t largest) {
  const JsonValue value = member(object, key, at, need);
  if (!strict_integers_ && value.is(JsonType::kDouble)) make_whole(value);
  if (!value || (value.is(JsonType::kUnsigned) && value.node()->u <= largest)) return value;
  fail(at, key, fmt::format("must be a whole number from 0 to {}", largest));
  return {};
}

JsonValue FieldCheck::given_object(JsonValue object, std::string_view key, const Path& at,
                                   Need need) {
  const JsonValue value = member(object, key, at, need);
  if (!value || value.is_object()) return value;
  fail(at, key, "must be an object");
  return {};
}

JsonValue FieldCheck::given_array(JsonValue object, std::string_view key, const Path& at,
                                  Need need) {
  const JsonValue value = member(object, key, at, need);
  if (!value || value.is_array()) return value;
  fail(at, key, "must be a list");
  return {};
}

JsonValue FieldCheck::word(JsonValue object, std::string_view key, const Path& at, Need need,
                           std::initializer_list<std::string_view> words) {
  const JsonValue value = string(object, key, at, need);
  if (!value) return {};
  for (const std::string_view word : words) {
    if (value.str() == word) return value;
  }
  fail(at, key,
       fmt::format("is \"{}\"; it must be one of {}", value.str().substr(0, 100),
                   fmt::join(words, ", ")));
  return {};
}

void FieldCheck::all_strings(JsonValue array, const Path& at) {
  int64_t i = 0;
  for (const JsonValue element : array) {
    if (!element.is_string()) return fail_here(Path{&at, {}, i}, "must be a string");
    ++i;
  }
}

bool FieldCheck::is_object(JsonValue value, const Path& at) {
  if (value.is_object()) return true;
  fail_here(at, "must be an object");
  return false;
}

}  // namespace hadal::recipe
