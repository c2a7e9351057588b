#include "engine/grammar/schema_compiler.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/grammar/schema_disjoint.h"
#include "engine/grammar/schema_merge.h"

namespace hadal::grammar {

using Json = nlohmann::ordered_json;
using schema_words::Words;
namespace {

constexpr size_t kMaxNodes = 1u << 18;
constexpr std::string_view kAnnotations[] = {"title",
                                             "description",
                                             "default",
                                             "examples",
                                             "$schema",
                                             "$id",
                                             "$comment",
                                             "deprecated",
                                             "readOnly",
                                             "writeOnly",
                                             "$defs",
                                             "$def",
                                             "format",
                                             "definitions",
                                             "$anchor",
                                             "contentEncoding",
                                             "contentMediaType",
                                             "nullable"};
constexpr std::string_view kObjectWords[] = {"properties",           "required",
                                             "additionalProperties", "minProperties",
                                             "maxProperties",        "unevaluatedProperties"};
constexpr std::string_view kArrayWords[] = {"items", "prefixItems", "minItems", "maxItems",
                                            "uniqueItems"};
constexpr std::string_view kStringWords[] = {"minLength", "maxLength", "pattern", kAllPatterns};
constexpr std::string_view kOtherWords[] = {"type",  "enum",  "const", "anyOf",
                                            "oneOf", "allOf", "$ref"};

constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                       "null",   "array",  "object"};

bool is_in(Words words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
  }
  return (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
         (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
         (type == "array" && value.is_array()) || (type == "object" && value.is_object());
}

}  // namespace

std::string pointer_step(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

SchemaCompiler::Rule SchemaCompiler::fail(std::string problem, std::string at) {
  if (problem_.empty()) {
    problem_ = std::move(problem);
    problem_at_ = std::move(at);
  }
  return std::nullopt;
}
SchemaCompiler::Rule SchemaCompiler::cannot(std::string_view word, const std::string& path) {
  return fail(fmt::format("output that must keep to \"{}\" is not available here", word),
              path + "/" + pointer_step(word));
}

SchemaCompiler::Rule SchemaCompiler::schema(const Json& s, const std::string& path) {
  if (grammar_->nodes().size() > kMaxNodes) return fail("the schema is too large", path);
  if (s.is_boolean()) {
    if (s.get<bool>()) return rules_.value();
    return fail("nothing is valid here", path);
  }
  if (!s.is_object()) return fail("a schema must be an object or a boolean", path);
  if (!has_known_words(s, path)) return std::nullopt;
  if (depth_ == kMaxDepth) return fail("the schema is nested too deeply", path);
  ++depth_;
  const Rule rule = by_words(s, path);
  --depth_;
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::by_words(const Json& s, const std::string& path) {
  const std::string word = whole_word(s);
  if (word.empty()) return typed(s, path);
  if (s.contains("allOf") || (word == "$ref" && !stands_alone(s, word))) return combined(s, path);
  if (stands_alone(s, word)) return whole(s, word, path);
  if (word == "anyOf" || word == "oneOf") return branches(s, word, path);
  return fitting(s, word, path);
}

bool SchemaCompiler::is_annotation(std::string_view word) {
  return is_in(kAnnotations, word);
}

bool SchemaCompiler::has_known_words(const Json& s, const std::string& path) {
  for (const auto& [key, value] : s.items()) {
    const bool known = is_in(kAnnotations, key) || is_in(kObjectWords, key) ||
                       is_in(kArrayWords, key) || is_in(kStringWords, key) ||
                       is_in(schema_words::kNumber, key) || is_in(kOtherWords, key);
    if (!known) return cannot(key, path).has_value();
  }
  return true;
}

std::string SchemaCompiler::whole_word(const Json& s) {
  for (const char* word : {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"}) {
    if (s.contains(word)) return word;
  }
  return "";
}

bool SchemaCompiler::stands_alone(const Json& s, std::string_view word) {
  return std::all_of(s.items().begin(), s.items().end(), [&](const auto& item) {
    return item.key() == word || is_in(kAnnotations, item.key()) ||
           (item.key() == "type" && (word == "enum" || word == "const"));
  });
}

SchemaCompiler::Rule SchemaCompiler::whole(const Json& s, std::string_view word,
                                           const std::string& path) {
  const std::string at = path + "/" + std::string(word);
  const Json& value = s.at(std::string(word));
  if (word == "$ref") return reference(value, at);
  if (word == "const") return constants(Json::array({value}), s, at);
  if (!value.is_array() || value.empty()) return fail("must be a list that is not empty", at);
  if (word == "enum") return constants(value, s, at);
  if (word == "oneOf" && !are_disjoint(value, root_)) {
    return fail("the branches of \"oneOf\" must differ in type or in a required constant", at);
  }
  const uint32_t rule = grammar_->add_rule();
  for (size_t i = 0; i < value.size(); ++i) {
    const Rule branch = schema(value[i], fmt::format("{}/{}", at, i));
    if (!branch) return std::nullopt;
    grammar_->mark_end(grammar_->rule(grammar_->start(rule), *branch));
  }
  return rule;
}

const SchemaCompiler::Json* SchemaCompiler::find(const std::string& reference) const {
  if (!reference.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(reference.substr(1));
    if (root_.contains(pointer)) return &root_.at(pointer);
  } catch (const Json::exception&) {
  }
  return nullptr;
}

SchemaCompiler::Rule SchemaCompiler::reference(const Json& ref, const std::string& at) {
  if (!ref.is_string()) return fail("must be a string", at);
  const auto name = ref.get<std::string>();
  if (const auto known = references_.find(name); known != references_.end()) return known->second;
  if (!name.starts_with('#')) return fail("only references into the same schema are read", at);
  const Json* target = find(name);
  if (target == nullptr) return fail("refers to nothing", at);
  // A rule first: what it refers to may refer back. A circle that reads nothing has no text.
  const uint32_t rule = grammar_->add_rule();
  references_.emplace(name, rule);
  const Rule inner = schema(*target, name);
  if (!inner) return std::nullopt;
  grammar_->mark_end(grammar_->rule(grammar_->start(rule), *inner));
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::constants(const Json& values, const Json& s,
                                               const std::string& at) {
  std::vector<std::string> types;
  if (s.contains("type") && !read_types(s, at, types)) return std::nullopt;
  const uint32_t rule = grammar_->add_rule();
  bool any = false;
  for (const Json& value : values) {
    const bool fits =
        types.empty() || std::any_of(types.begin(), types.end(),
                                     [&](const std::string& t) { return has_type(value, t); });
    if (!fits) continue;
    any = true;
    grammar_->mark_end(grammar_->literal(grammar_->start(rule), value.dump()));
  }
  if (!any) return fail("none of the values has the type", at);
  return rule;
}

bool SchemaCompiler::read_types(const Json& s, const std::string& path,
                                std::vector<std::string>& out) {
  const Json& type = s.at("type");
  const Json list = type.is_array() ? type : Json::array({type});
  for (const Json& one : list) {
    if (!one.is_string() || !is_in(kTypes, one.get<std::string>())) {
      fail("is no type of JSON", path + "/type");
      return false;
    }
    out.push_back(one.get<std::string>());
  }
  if (out.empty()) return fail("must not be an empty list", path + "/type").has_value();
  return true;
}

bool SchemaCompiler::types_of(const Json& s, const std::string& path,
                              std::vector<std::string>& out) {
  if (s.contains("type")) return read_types(s, path, out);
  const auto about = [&](Words words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view w) { return s.contains(std::string(w)); });
  };
  if (about(kObjectWords)) {
    out = {"object"};
  } else if (about(kArrayWords)) {
    out = {"array"};
  } else if (about(kStringWords)) {
    out = {"string"};
  } else if (about(schema_words::kNumber)) {
    out = {"number"};
  }
  return true;
}

SchemaCompiler::Rule SchemaCompiler::typed(const Json& s, const std::string& path) {
  std::vector<std::string> types;
  if (!types_of(s, path, types)) return std::nullopt;
  if (types.empty()) return rules_.value();
  if (types.size() == 1) return of_type(s, types[0], path);
  const uint32_t rule = grammar_->add_rule();
  for (const std::string& type : types) {
    const Rule one = of_type(s, type, path);
    if (!one) return std::nullopt;
    grammar_->mark_end(grammar_->rule(grammar_->start(rule), *one));
  }
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::of_type(const Json& s, std::string_view type,
                                             const std::string& path) {
  if (type == "object") return object(s, path);
  if (type == "array") return array(s, path);
  if (type == "string") return string(s, path);
  if (type == "integer" || type == "number") return number(s, type == "integer", path);
  if (type == "boolean") return rules_.boolean();
  const uint32_t rule = grammar_->add_rule();
  grammar_->mark_end(grammar_->literal(grammar_->start(rule), "null"));
  return rule;
}

}  // namespace hadal::grammar
