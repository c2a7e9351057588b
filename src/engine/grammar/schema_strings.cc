#include <algorithm>
#include <string>

#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_merge.h"
#include "engine/grammar/string_format.h"

// Strings: as JSON, and as the raw text of a parameter.
namespace hadal::grammar {

using Json = nlohmann::ordered_json;

std::optional<SchemaCompiler::StringTexts> SchemaCompiler::string_texts(const Json& s,
                                                                        const std::string& path) {
  const auto failed = [&](std::string problem, const std::string& at) {
    fail(std::move(problem), at);
    return std::nullopt;
  };
  uint64_t low = 0, high = 0;
  if (!count(s, "minLength", path, 0, low) || !count(s, "maxLength", path, UINT64_MAX, high)) {
    return std::nullopt;
  }
  if (low > high) return failed("minLength is above maxLength", path + "/minLength");
  if (low > kMaxCounted) {
    cannot("minLength", path);
    return std::nullopt;
  }
  StringTexts out;
  out.low = static_cast<uint32_t>(low);
  // Longer strings than can be counted are left out, which is within the schema.
  if (high != UINT64_MAX) out.high = static_cast<uint32_t>(std::min<uint64_t>(high, kMaxCounted));
  if (s.contains("format") && s.at("format").is_string()) {
    const CharDfa* format = format_dfa(s.at("format").get<std::string>());
    if (format != nullptr) out.dfa = *format;
  }
  const std::string at = path + "/" + (s.contains("pattern") ? "pattern" : "format");
  const auto narrow = [&](core::Result<CharDfa> dfa) {
    if (dfa && out.dfa) dfa = intersection(*out.dfa, *dfa);
    if (!dfa) {
      fail(dfa.error().message, at);
      return false;
    }
    out.dfa = *std::move(dfa);
    return true;
  };
  if (s.contains("pattern")) {
    if (!s.at("pattern").is_string()) return failed("must be a string", at);
    if (!narrow(regex_dfa(s.at("pattern").get<std::string>(), Match::kSearch))) return std::nullopt;
  }
  if (s.contains(kAllPatterns)) {
    for (const Json& pattern : s.at(kAllPatterns)) {
      if (!narrow(regex_dfa(pattern.get<std::string>(), Match::kSearch))) return std::nullopt;
    }
  }
  if (out.dfa && (low > 0 || out.high) && !narrow(length_dfa(out.low, out.high))) {
    return std::nullopt;
  }
  if (out.dfa && out.dfa->is_empty()) {
    return failed("no string has all of pattern, format and length", at);
  }
  return out;
}

SchemaCompiler::Rule SchemaCompiler::string(const Json& s, const std::string& path) {
  const auto texts = string_texts(s, path);
  if (!texts) return std::nullopt;
  if (!texts->dfa) {
    if (texts->low == 0 && !texts->high) return rules_.string();
    return rules_.string_of_length(texts->low, texts->high);
  }
  Grammar& g = *grammar_;
  const uint32_t rule = g.add_rule();
  const uint32_t end = add_dfa(g, g.literal(g.start(rule), "\""), *texts->dfa, Spelling::kJson);
  g.mark_end(g.literal(end, "\""));
  return rule;
}

bool SchemaCompiler::raw_string(const Json& s, const std::string& path, uint32_t from,
                                uint32_t to) {
  auto texts = string_texts(s, path);
  if (!texts) return false;
  if (!texts->dfa) {
    auto counted = length_dfa(texts->low, texts->high);
    if (!counted) return fail(counted.error().message, path).has_value();
    texts->dfa = *std::move(counted);
  }
  grammar_->free(add_dfa(*grammar_, from, *texts->dfa, Spelling::kRaw), to);
  return true;
}

std::optional<SchemaCompiler::Texts> SchemaCompiler::texts(const Json& s, const std::string& path) {
  Split out{.raw = grammar_->add_rule(), .json = grammar_->add_rule()};
  out.raw_end = grammar_->add_node();
  out.json_end = grammar_->add_node();
  grammar_->mark_end(out.raw_end);
  grammar_->mark_end(out.json_end);
  if (!split(s, path, 0, out)) return std::nullopt;
  return Texts{.raw = out.has_raw ? Rule(out.raw) : Rule(),
               .json = out.has_json ? Rule(out.json) : Rule()};
}

bool SchemaCompiler::split(const Json& s, const std::string& path, uint32_t depth, Split& out) {
  Grammar& g = *grammar_;
  const auto as_json = [&](const Json& part) {
    const Rule rule = schema(part, path);
    if (!rule) return false;
    g.free(g.rule(g.start(out.json), *rule), out.json_end);
    return out.has_json = true;
  };
  const auto as_raw = [&](const Json& part) {
    out.has_raw = true;
    return raw_string(part, path, g.start(out.raw), out.raw_end);
  };
  if (s == Json(true)) return as_json(s) && as_raw(Json::object());
  if (!s.is_object() || depth > kMaxSplit) return as_json(s);
  if (!has_known_words(s, path)) return false;
  const std::string word = whole_word(s);
  if (word.empty()) {
    std::vector<std::string> types;
    if (!types_of(s, path, types)) return false;
    if (types.empty()) return as_json(s) && as_raw(Json::object());
    if (std::erase(types, "string") > 0 && !as_raw(s)) return false;
    if (types.empty()) return true;
    Json rest = s;
    rest["type"] = types;
    return as_json(rest);
  }
  if (!stands_alone(s, word)) return as_json(s);
  const Json& value = s.at(word);
  if (word == "$ref") {
    const Json* target = value.is_string() ? find(value.get<std::string>()) : nullptr;
    if (target == nullptr) return as_json(s);  // says what is wrong
    return split(*target, value.get<std::string>(), depth + 1, out);
  }
  if (word == "anyOf" && value.is_array() && !value.empty()) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (!split(value[i], path + "/anyOf/" + std::to_string(i), depth + 1, out)) return false;
    }
    return true;
  }
  if (word != "const" && word != "enum") return as_json(s);
  const Json values = word == "const" ? Json::array({value}) : value;
  Json others = Json::array();
  if (!values.is_array()) return as_json(s);
  std::vector<std::string> types;
  if (s.contains("type") && !read_types(s, path, types)) return false;
  const bool may_be_string =
      types.empty() || std::find(types.begin(), types.end(), "string") != types.end();
  for (const Json& one : values) {
    if (!one.is_string()) {
      others.push_back(one);
    } else if (may_be_string) {
      g.free(g.literal(g.start(out.raw), one.get<std::string>()), out.raw_end);
      out.has_raw = true;
    }
  }
  if (others.empty() && out.has_raw) return true;
  Json rest = s;
  rest.erase(word);
  rest["enum"] = others.empty() ? values : others;
  return as_json(rest);
}

std::optional<std::vector<SchemaCompiler::Property>> SchemaCompiler::closed_object(const Json& s) {
  std::vector<Property> out;
  if (!s.is_object()) {
    fail("a schema must be an object", "#");
    return std::nullopt;
  }
  if (!has_known_words(s, "#")) return std::nullopt;
  const Json empty = Json::array();
  const Json& required = s.contains("required") ? s.at("required") : empty;
  for (const auto& [key, value] : s.items()) {
    const bool shape =
        key == "type" || key == "properties" || key == "required" || key == "additionalProperties";
    if (!shape && !is_annotation(key)) {
      cannot(key, "#");
      return std::nullopt;
    }
  }
  if (s.contains("properties") && s.at("properties").is_object()) {
    for (const auto& [name, inner] : s.at("properties").items()) {
      const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
      out.push_back({name, "#/properties/" + pointer_step(name), &inner, needed});
    }
  }
  for (const Json& name : required) {
    if (!name.is_string() || !s.contains("properties") ||
        !s.at("properties").contains(name.get<std::string>())) {
      fail("requires a property that is not allowed", "#/required");
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace hadal::grammar
