#include "gateway/recipe/schema_check.h"

#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "gateway/recipe/regex_syntax.h"

// Checks a schema against the rules of its own draft: one table of keywords, one walk.
namespace hadal::recipe {

namespace {

enum class Draft : uint8_t { k4, k6or7, k2019, k2020 };

enum class Rule : uint8_t {
  kSchema,
  kSchemaMap,
  kSchemaList,
  kItems,  // a schema; before 2020-12 also a list of them
  kString,
  kAnchor,
  kReference,
  kRegex,
  kRegexMap,  // keys are expressions
  kCount,
  kNumber,
  kPositive,
  kExclusive,  // a number; in draft 4 a boolean
  kNameList,
  kNameListMap,
  kArray,
  kBool,
  kType,
  kObject,
  kDependencies,
};

struct Keyword {
  std::string_view name;
  Rule rule;
};

constexpr Keyword kKeywords[] = {
    {"$anchor", Rule::kAnchor},
    {"$comment", Rule::kString},
    {"$defs", Rule::kSchemaMap},
    {"$dynamicAnchor", Rule::kAnchor},
    {"$dynamicRef", Rule::kReference},
    {"$id", Rule::kString},
    {"$ref", Rule::kReference},
    {"$vocabulary", Rule::kObject},
    {"additionalItems", Rule::kSchema},
    {"additionalProperties", Rule::kSchema},
    {"allOf", Rule::kSchemaList},
    {"anyOf", Rule::kSchemaList},
    {"contains", Rule::kSchema},
    {"contentEncoding", Rule::kString},
    {"contentMediaType", Rule::kString},
    {"contentSchema", Rule::kSchema},
    {"definitions", Rule::kSchemaMap},
    {"dependencies", Rule::kDependencies},
    {"dependentRequired", Rule::kNameListMap},
    {"dependentSchemas", Rule::kSchemaMap},
    {"deprecated", Rule::kBool},
    {"description", Rule::kString},
    {"else", Rule::kSchema},
    {"enum", Rule::kArray},
    {"examples", Rule::kArray},
    {"exclusiveMaximum", Rule::kExclusive},
    {"exclusiveMinimum", Rule::kExclusive},
    {"format", Rule::kString},
    {"if", Rule::kSchema},
    {"items", Rule::kItems},
    {"maxContains", Rule::kCount},
    {"maxItems", Rule::kCount},
    {"maxLength", Rule::kCount},
    {"maxProperties", Rule::kCount},
    {"maximum", Rule::kNumber},
    {"minContains", Rule::kCount},
    {"minItems", Rule::kCount},
    {"minLength", Rule::kCount},
    {"minProperties", Rule::kCount},
    {"minimum", Rule::kNumber},
    {"multipleOf", Rule::kPositive},
    {"not", Rule::kSchema},
    {"oneOf", Rule::kSchemaList},
    {"pattern", Rule::kRegex},
    {"patternProperties", Rule::kRegexMap},
    {"prefixItems", Rule::kSchemaList},
    {"properties", Rule::kSchemaMap},
    {"propertyNames", Rule::kSchema},
    {"readOnly", Rule::kBool},
    {"required", Rule::kNameList},
    {"then", Rule::kSchema},
    {"title", Rule::kString},
    {"type", Rule::kType},
    {"unevaluatedItems", Rule::kSchema},
    {"unevaluatedProperties", Rule::kSchema},
    {"uniqueItems", Rule::kBool},
    {"writeOnly", Rule::kBool},
};

constexpr std::string_view kTypes[] = {"array",  "boolean", "integer", "null",
                                       "number", "object",  "string"};
constexpr size_t kShownBytes = 500;
constexpr size_t kManyMembers = 16;

std::string shown(JsonValue value) {
  std::string text;
  append_json_compact(text, value, FloatStyle::kRust);
  if (text.size() > kShownBytes) {
    text.resize(kShownBytes);
    while (!text.empty() && (text.back() & 0x80) != 0) text.pop_back();
    text += "...";
  }
  return text;
}

bool is_type_name(std::string_view name) {
  for (const std::string_view type : kTypes) {
    if (type == name) return true;
  }
  return false;
}

bool is_anchor(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (text.empty() || !is_letter(text[0])) return false;
  for (const char c : text) {
    if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '-' && c != '.') return false;
  }
  return true;
}

class SchemaChecker {
 public:
  explicit SchemaChecker(JsonValue root) : root_(root) {}

  std::string run() {
    const JsonValue draft = root_["$schema"];
    if (draft.is_string()) set_draft(draft.str());
    schema(root_);
    for (size_t i = 0; i < references_.size() && problem_.empty(); ++i) resolve(references_[i]);
    return problem_;
  }

 private:
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  void fail_type(JsonValue value, std::string_view types) {
    fail(fmt::format("{} is not of type{} {}", shown(value),
                     types.find(',') == std::string_view::npos ? "" : "s", types));
  }

  void set_draft(std::string_view url) {
    if (url.ends_with('#')) url.remove_suffix(1);
    if (url.ends_with("json-schema.org/draft/2020-12/schema")) return;
    if (url.ends_with("json-schema.org/draft/2019-09/schema")) {
      draft_ = Draft::k2019;
    } else if (url.ends_with("json-schema.org/draft-07/schema") ||
               url.ends_with("json-schema.org/draft-06/schema")) {
      draft_ = Draft::k6or7;
    } else if (url.ends_with("json-schema.org/draft-04/schema")) {
      draft_ = Draft::k4;
    } else {
      fail(
          fmt::format("Unknown meta-schema: '{}'. Custom meta-schemas must be registered in the "
                      "registry before use",
                      url.substr(0, kShownBytes)));
    }
  }

  void schema(JsonValue value) {
    if (!problem_.empty()) return;
    if (value.is_bool()) return;
    if (!value.is_object()) return fail_type(value, "\"boolean\", \"object\"");
    for_each_member(value, [&](std::string_view key, JsonValue member) {
      for (const Keyword& keyword : kKeywords) {
        if (keyword.name != key) continue;
        apply(keyword.rule, member);
        if (key == "$anchor" || key == "$dynamicAnchor") anchors_.insert(member.str());
        if (key == "$id") ids_.insert(member.str());
        break;
      }
    });
  }

  void apply(Rule rule, JsonValue value) {
    if (!problem_.empty()) return;
    switch (rule) {
      case Rule::kSchema:
        schema(value);
        break;
      case Rule::kSchemaMap:
        schema_map(value);
        break;
      case Rule::kSchemaList:
        schema_list(value);
        break;
      case Rule::kItems:
        if (value.is_array() && draft_ != Draft::k2020) {
          schema_list(value);
        } else {
          schema(value);
        }
        break;
      case Rule::kString:
        string(value);
        break;
      case Rule::kAnchor:
        string(value);
        if (problem_.empty() && !is_anchor(value.str())) {
          fail(fmt::format("{} does not match \"^[A-Za-z_][-A-Za-z0-9._]*$\"", shown(value)));
        }
        break;
      case Rule::kReference:
        string(value);
        references_.push_back(value.str());
        break;
      case Rule::kRegex:
        string(value);
        if (problem_.empty() && !is_regex(value.str())) {
          fail(fmt::format("{} is not a \"regex\"", shown(value)));
        }
        break;
      case Rule::kRegexMap:
        regex_map(value);
        break;
      case Rule::kCount:
        count(value);
        break;
      case Rule::kNumber:
        number(value);
        break;
      case Rule::kPositive:
        number(value);
        if (problem_.empty() && value.number() <= 0) {
          fail(fmt::format("{} is less than or equal to the minimum of 0", shown(value)));
        }
        break;
      case Rule::kExclusive:
        if (draft_ == Draft::k4) {
          if (!value.is_bool()) fail_type(value, "\"boolean\"");
        } else {
          number(value);
        }
        break;
      case Rule::kNameList:
        name_list(value);
        break;
      case Rule::kNameListMap:
        if (!value.is_object()) return fail_type(value, "\"object\"");
        for_each_member(value, [&](std::string_view, JsonValue list) { name_list(list); });
        break;
      case Rule::kArray:
        if (!value.is_array()) fail_type(value, "\"array\"");
        break;
      case Rule::kBool:
        if (!value.is_bool()) fail_type(value, "\"boolean\"");
        break;
      case Rule::kType:
        type(value);
        break;
      case Rule::kObject:
        if (!value.is_object()) fail_type(value, "\"object\"");
        break;
      case Rule::kDependencies:
        dependencies(value);
        break;
    }
  }

  void string(JsonValue value) {
    if (!value.is_string()) fail_type(value, "\"string\"");
  }
  void number(JsonValue value) {
    if (!value.is_number()) fail_type(value, "\"number\"");
  }

  void count(JsonValue value) {
    const double number = value.number();
    if (!value.is_number() || number != std::floor(number)) return fail_type(value, "\"integer\"");
    if (number < 0) fail(fmt::format("{} is less than the minimum of 0", shown(value)));
  }

  void schema_map(JsonValue value) {
    if (!value.is_object()) return fail_type(value, "\"object\"");
    for_each_member(value, [&](std::string_view, JsonValue member) { schema(member); });
  }

  void schema_list(JsonValue value) {
    if (!value.is_array()) return fail_type(value, "\"array\"");
    if (value.size() == 0) return fail("[] has less than 1 item");
    for (const JsonValue element : value) schema(element);
  }

  void regex_map(JsonValue value) {
    if (!value.is_object()) return fail_type(value, "\"object\"");
    for_each_member(value, [&](std::string_view key, JsonValue member) {
      if (!is_regex(key)) fail(fmt::format("{} is not a \"regex\"", shown(member)));
      schema(member);
    });
  }

  void name_list(JsonValue value) {
    if (!value.is_array()) return fail_type(value, "\"array\"");
    std::unordered_set<std::string_view> seen;
    for (const JsonValue element : value) {
      if (!element.is_string()) return fail_type(element, "\"string\"");
      if (!seen.insert(element.str()).second) {
        return fail(fmt::format("{} has non-unique elements", shown(value)));
      }
    }
  }

  void type(JsonValue value) {
    if (value.is_string() && is_type_name(value.str())) return;
    bool good = value.is_array() && value.size() > 0;
    std::unordered_set<std::string_view> seen;
    if (good) {
      for (const JsonValue element : value) {
        good = good && element.is_string() && is_type_name(element.str()) &&
               seen.insert(element.str()).second;
      }
    }
    if (!good) {
      fail(fmt::format("{} is not valid under any of the schemas listed in the 'anyOf' keyword",
                       shown(value)));
    }
  }

  void dependencies(JsonValue value) {
    if (!value.is_object()) return fail_type(value, "\"object\"");
    for_each_member(value, [&](std::string_view, JsonValue member) {
      if (member.is_array()) {
        name_list(member);
      } else if (member.is_object() || member.is_bool()) {
        schema(member);
      } else {
        fail(fmt::format("{} is not valid under any of the schemas listed in the 'anyOf' keyword",
                         shown(member)));
      }
    });
  }

  void resolve(std::string_view reference) {
    if (reference.find("json-schema.org/draft") != std::string_view::npos) return;
    if (!reference.starts_with('#')) {
      const std::string_view base = reference.substr(0, reference.find('#'));
      if (ids_.contains(base)) return;
      return fail(
          fmt::format("Resource '{0}' is not present in a registry and retrieving it failed: {1}",
                      reference.substr(0, kShownBytes),
                      reference.find("://") == std::string_view::npos
                          ? std::string("No base URI is available")
                          : fmt::format("Retrieval is disabled, cannot fetch {}",
                                        reference.substr(0, kShownBytes))));
    }
    reference.remove_prefix(1);
    if (reference.empty()) return;
    if (reference[0] != '/') {
      if (!anchors_.contains(reference)) {
        fail(fmt::format("Anchor '{}' does not exist", reference.substr(0, kShownBytes)));
      }
      return;
    }
    if (!pointer_exists(reference)) {
      fail(fmt::format("Pointer '{}' does not exist", reference.substr(0, kShownBytes)));
    }
  }

  bool pointer_exists(std::string_view pointer) {
    JsonValue at = root_;
    while (!pointer.empty()) {
      pointer.remove_prefix(1);
      const size_t end = std::min(pointer.find('/'), pointer.size());
      at = step(at, unescape(pointer.substr(0, end)));
      if (!at) return false;
      pointer.remove_prefix(end);
    }
    return true;
  }

  static std::string unescape(std::string_view token) {
    std::string out;
    for (size_t i = 0; i < token.size(); ++i) {
      if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
        out += token[++i] == '0' ? '~' : '/';
      } else if (token[i] == '%' && i + 2 < token.size() && std::isxdigit(token[i + 1]) != 0 &&
                 std::isxdigit(token[i + 2]) != 0) {
        out += static_cast<char>(std::stoi(std::string(token.substr(i + 1, 2)), nullptr, 16));
        i += 2;
      } else {
        out += token[i];
      }
    }
    return out;
  }

  // A member or element. Large containers are indexed once, so that many references stay cheap.
  JsonValue step(JsonValue at, const std::string& token) {
    if (at.size() <= kManyMembers && at.is_object()) return at[token];
    auto [index, is_new] = indices_.try_emplace(at.node());
    if (is_new) {
      if (at.is_object()) {
        for_each_member(at, [&](std::string_view key, JsonValue member) {
          index->second.emplace(key, member.node());
        });
      } else if (at.is_array()) {
        size_t i = 0;
        for (const JsonValue element : at) {
          index->second.emplace(std::to_string(i++), element.node());
        }
      }
    }
    const auto found = index->second.find(token);
    return found == index->second.end() ? JsonValue() : JsonValue(found->second);
  }

  JsonValue root_;
  Draft draft_ = Draft::k2020;
  std::string problem_;
  std::vector<std::string_view> references_;
  std::unordered_set<std::string_view> anchors_, ids_;
  std::unordered_map<const JsonNode*, std::unordered_map<std::string, const JsonNode*>> indices_;
};

}  // namespace

std::string schema_problem(JsonValue schema) {
  return SchemaChecker(schema).run();
}

}  // namespace hadal::recipe
