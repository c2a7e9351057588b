#include <string>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "gateway/recipe/schema_check.h"

// The closed form of a schema. The types of the keywords that stay are checked first (check), then
// the form is written and its rules are checked (write).
namespace hadal::recipe {

namespace {

constexpr std::string_view kScalars[] = {"string", "number", "integer", "boolean", "null"};
constexpr std::string_view kFormats[] = {"email", "hostname", "ipv4", "ipv6", "uuid"};
constexpr std::string_view kNumberKeywords[] = {"description",      "const",     "default",
                                                "minimum",          "maximum",   "exclusiveMinimum",
                                                "exclusiveMaximum", "multipleOf"};

template <size_t N>
bool one_of(const std::string_view (&words)[N], std::string_view word) {
  for (const std::string_view other : words) {
    if (other == word) return true;
  }
  return false;
}

std::string unknown_variant(std::string_view word, fmt::string_view list) {
  return fmt::format("unknown variant `{}`, expected one of {}", word.substr(0, 200), list);
}

// How serde names a value of the wrong type.
std::string wrong_type(JsonValue value, std::string_view expected) {
  std::string what;
  if (value.is_null()) {
    what = "null";
  } else if (value.is_bool()) {
    what = fmt::format("boolean `{}`", value.is_true() ? "true" : "false");
  } else if (value.is_string()) {
    append_json_string(what, value.str().substr(0, 200));
    what = "string " + what;
  } else if (value.is_array()) {
    what = "sequence";
  } else if (value.is_object()) {
    what = "map";
  } else {
    append_json(what, value, FloatStyle::kRust);
    what = fmt::format("{} `{}`", value.is(JsonType::kDouble) ? "floating point" : "integer", what);
  }
  return fmt::format("invalid type: {}, expected {}", what, expected);
}

class StrictWriter {
 public:
  StrictSchema run(JsonValue schema, bool top_level_tool) {
    check(schema);
    if (!result_.problem.empty()) return std::move(result_);
    if (top_level_tool && schema["type"].str() != "object") {
      fail_shape("The top level of the function parameters schema must be an object.");
      return std::move(result_);
    }
    write(schema, top_level_tool);
    return std::move(result_);
  }

 private:
  bool good() const { return result_.problem.empty(); }
  void fail(std::string problem) {
    if (good()) result_.problem = std::move(problem);
  }
  void fail_shape(std::string problem) {
    if (!good()) return;
    result_.problem = std::move(problem);
    result_.is_shape = true;
  }

  void check_string(JsonValue schema, std::string_view key) {
    const JsonValue value = schema[key];
    if (!value.absent_or_null() && !value.is_string()) fail(wrong_type(value, "a string"));
  }

  void check(JsonValue schema) {
    if (!good()) return;
    const JsonValue type = schema["type"];
    if (type) return check_typed(schema, type);
    if (const JsonValue list = schema["anyOf"]) {
      if (!list.is_array()) return fail("field `anyOf`: " + wrong_type(list, "a sequence"));
      for (const JsonValue element : list) check(element);
      check_string(schema, "description");
    } else if (const JsonValue reference = schema["$ref"]) {
      if (!reference.is_string()) fail("field `$ref`: " + wrong_type(reference, "a string"));
    } else {
      fail("one of `type`, `anyOf`, `$ref` field is required");
    }
  }

  void check_typed(JsonValue schema, JsonValue type) {
    if (type.is_array()) {
      for (const JsonValue element : type) {
        if (!element.is_string()) {
          return fail("field `type`: " + wrong_type(element, "string or map"));
        }
        if (!one_of(kScalars, element.str())) {
          return fail(
              "field `type`: " +
              unknown_variant(element.str(), "`string`, `number`, `integer`, `boolean`, `null`"));
        }
      }
      return check_string(schema, "description");
    }
    if (!type.is_string()) return fail(wrong_type(type, "variant identifier"));
    const std::string_view name = type.str();
    check_string(schema, "description");
    if (name == "object") {
      check_object(schema);
    } else if (name == "array") {
      const JsonValue items = schema["items"];
      if (!items) return fail("missing field `items`");
      check(items);
    } else if (name == "string") {
      check_string_type(schema);
    } else if (name == "integer" || name == "number") {
      check_numbers(schema, name == "integer");
    } else if (name != "boolean" && name != "null") {
      fail(unknown_variant(name,
                           "`object`, `string`, `number`, `integer`, `boolean`, `array`, `null`"));
    }
  }

  void check_string_type(JsonValue schema) {
    check_string(schema, "pattern");
    check_string(schema, "format");
    const JsonValue format = schema["format"];
    if (good() && format.is_string() && !one_of(kFormats, format.str())) {
      fail(unknown_variant(format.str(), "`email`, `hostname`, `ipv4`, `ipv6`, `uuid`"));
    }
    const JsonValue words = schema["enum"];
    if (words.absent_or_null()) return;
    if (!words.is_array()) return fail(wrong_type(words, "a sequence"));
    for (const JsonValue word : words) {
      if (!word.is_string()) return fail(wrong_type(word, "a string"));
    }
  }

  void check_numbers(JsonValue schema, bool integer) {
    for (const std::string_view key : kNumberKeywords) {
      const JsonValue value = schema[key];
      if (key == "description" || value.absent_or_null()) continue;
      const bool fits = integer ? value.is(JsonType::kNegative) ||
                                      (value.is(JsonType::kUnsigned) &&
                                       value.node()->u <= static_cast<uint64_t>(INT64_MAX))
                                : value.is_number();
      if (!fits) return fail(wrong_type(value, integer ? "i64" : "f64"));
    }
  }

  void check_object(JsonValue schema) {
    const JsonValue closed = schema["additionalProperties"];
    if (!closed.absent_or_null() && !closed.is_bool()) {
      return fail(wrong_type(closed, "a boolean"));
    }
    const JsonValue required = schema["required"];
    if (!required.absent_or_null()) {
      if (!required.is_array()) return fail(wrong_type(required, "a sequence"));
      for (const JsonValue name : required) {
        if (!name.is_string()) return fail(wrong_type(name, "a string"));
      }
    }
    for (const std::string_view key : {"properties", "$def"}) {
      const JsonValue map = schema[key];
      if (map.absent_or_null()) continue;
      if (!map.is_object()) return fail(wrong_type(map, "a map"));
      for_each_member(map, [&](std::string_view, JsonValue member) { check(member); });
    }
  }

  // ---- writing ----

  std::string& out() { return result_.text; }

  void key(std::string_view name) {
    if (!out().empty() && out().back() != '{') out() += ", ";
    append_json_string(out(), name);
    out() += ": ";
  }

  void copy(JsonValue schema, std::string_view name) {
    const JsonValue value = schema[name];
    if (value.absent_or_null()) return;
    key(name);
    append_json(out(), value, FloatStyle::kPython);
  }

  void write(JsonValue schema, bool may_be_empty) {
    if (!good()) return;
    out() += '{';
    const JsonValue type = schema["type"];
    const std::string_view name = type.str();
    if (type) {
      copy(schema, "type");
    }
    if (name == "object") {
      write_object(schema, may_be_empty);
    } else if (name == "array") {
      key("items");
      write(schema["items"], false);
      copy(schema, "description");
    } else if (name == "string") {
      for (const std::string_view field : {"description", "pattern", "format", "enum"}) {
        copy(schema, field);
      }
    } else if (name == "integer" || name == "number") {
      for (const std::string_view field : kNumberKeywords) copy(schema, field);
    } else if (type) {
      copy(schema, "description");
    } else if (const JsonValue list = schema["anyOf"]) {
      key("anyOf");
      out() += '[';
      bool first = true;
      for (const JsonValue element : list) {
        if (!first) out() += ", ";
        first = false;
        write(element, false);
      }
      out() += ']';
      copy(schema, "description");
    } else {
      copy(schema, "$ref");
    }
    out() += '}';
  }

  void write_object(JsonValue schema, bool may_be_empty) {
    const JsonValue properties = schema["properties"];
    if (properties.size() == 0 && !may_be_empty) {
      return fail_shape("An object with no properties is not allowed.");
    }
    if (schema["additionalProperties"].is_true()) {
      return fail_shape("additionalProperties should not be true");
    }
    check_required(schema["required"], properties);
    key("properties");
    write_map(properties);
    key("additionalProperties");
    out() += "false";
    key("required");
    out() += '[';
    bool first = true;
    for_each_member(properties, [&](std::string_view name, JsonValue) {
      if (!first) out() += ", ";
      first = false;
      append_json_string(out(), name);
    });
    out() += ']';
    copy(schema, "description");
    if (!schema["$def"].absent_or_null()) {
      key("$def");
      write_map(schema["$def"]);
    }
  }

  void write_map(JsonValue map) {
    out() += '{';
    for_each_member(map, [&](std::string_view name, JsonValue member) {
      if (!good()) return;
      key(name);
      write(member, false);
    });
    out() += '}';
  }

  void check_required(JsonValue required, JsonValue properties) {
    if (required.absent_or_null()) return;
    std::unordered_set<std::string_view> names, seen;
    for_each_member(properties, [&](std::string_view name, JsonValue) { names.insert(name); });
    for (const JsonValue name : required) {
      if (!names.contains(name.str())) {
        return fail_shape(fmt::format("Required property '{}' not found in object", name.str()));
      }
      if (!seen.insert(name.str()).second) {
        return fail_shape(fmt::format("Duplicate required property '{}'", name.str()));
      }
    }
    if (seen.size() != names.size()) {
      fail_shape("Required properties must match all properties in the object");
    }
  }

  StrictSchema result_;
};

}  // namespace

StrictSchema strict_schema(JsonValue schema, bool top_level_tool) {
  return StrictWriter().run(schema, top_level_tool);
}

}  // namespace hadal::recipe
