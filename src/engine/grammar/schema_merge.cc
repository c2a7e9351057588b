#include "engine/grammar/schema_merge.h"

#include <algorithm>
#include <string_view>

namespace hadal::grammar {
namespace {

using Json = nlohmann::ordered_json;
using Merged = std::optional<Json>;

bool is_any(std::initializer_list<std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Json as_list(const Json& value) {
  return value.is_array() ? value : Json::array({value});
}

bool has(const Json& list, const Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Json types_of_both(const Json& a, const Json& b) {
  Json out = Json::array();
  const Json left = as_list(a), right = as_list(b);
  for (const Json& type : left) {
    if (has(right, type)) {
      out.push_back(type);
    } else if (type == "integer" && has(right, "number")) {
      out.push_back(type);
    } else if (type == "number" && has(right, "integer")) {
      out.push_back("integer");
    }
  }
  return out;
}

Json both_lists(const Json& a, const Json& b, bool all) {
  Json out = all ? a : Json::array();
  for (const Json& value : b) {
    if (has(a, value) != all) out.push_back(value);
  }
  return out;
}

class Merger {
 public:
  explicit Merger(std::string& problem) : problem_(problem) {}

  Merged merge(const Json& a, const Json& b) {
    if (a == Json(false) || b == Json(false)) return Json(false);
    if (a == Json(true)) return b;
    if (b == Json(true)) return a;
    if (!a.is_object() || !b.is_object()) return fail("");
    Json out = a;
    if (!properties(a, b, out)) return std::nullopt;
    for (const auto& [key, value] : b.items()) {
      if (is_any({"properties", "additionalProperties"}, key)) continue;
      if (!a.contains(key)) {
        // Arrays' first items: what `items` is about depends on the other's list.
        const bool items = (key == "prefixItems" && a.contains("items")) ||
                           (key == "items" && a.contains("prefixItems"));
        if (items) return fail(key);
        out[key] = value;
        continue;
      }
      if (a.at(key) == value) continue;
      if (!keyword(key, a.at(key), value, out)) return std::nullopt;
    }
    if (out.contains("type") && out.at("type").empty()) return Json(false);
    return constants(std::move(out));
  }

 private:
  std::nullopt_t fail(std::string_view word) {
    if (problem_.empty()) problem_ = word;
    return std::nullopt;
  }

  bool keyword(const std::string& key, const Json& a, const Json& b, Json& out) {
    if (is_any({"title", "description", "default", "examples", "$schema", "$id", "$comment",
                "deprecated", "readOnly", "writeOnly", "$defs", "$def", "definitions", "$anchor",
                "contentEncoding", "contentMediaType", "nullable"},
               key)) {
      return true;  // say nothing
    }
    const bool numbers = a.is_number() && b.is_number();
    if (is_any({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}, key) &&
        numbers) {
      out[key] = std::max(a, b);
    } else if (is_any({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"},
                      key) &&
               numbers) {
      out[key] = std::min(a, b);
    } else if (key == "type") {
      out[key] = types_of_both(a, b);
    } else if (key == "required" && a.is_array() && b.is_array()) {
      out[key] = both_lists(a, b, true);
    } else if (key == "enum" && a.is_array() && b.is_array()) {
      out[key] = both_lists(a, b, false);
    } else if (key == "pattern" && a.is_string() && b.is_string()) {
      out[kAllPatterns] = out.contains(kAllPatterns) ? out[kAllPatterns] : Json::array();
      out[kAllPatterns].push_back(b);
    } else if (key == kAllPatterns) {
      out[key] = both_lists(a, b, true);
    } else if (key == "items") {
      const Merged items = merge(a, b);
      if (!items) return false;
      out[key] = *items;
    } else if (key == "uniqueItems") {
      out[key] = true;
    } else {
      fail(key);
      return false;
    }
    return true;
  }

  // A name that only one of them lists is, for the other, an additional one.
  bool properties(const Json& a, const Json& b, Json& out) {
    const Json none = Json::object(), any = true;
    const Json& of_a = a.contains("properties") ? a.at("properties") : none;
    const Json& of_b = b.contains("properties") ? b.at("properties") : none;
    const Json& rest_a = a.contains("additionalProperties") ? a.at("additionalProperties") : any;
    const Json& rest_b = b.contains("additionalProperties") ? b.at("additionalProperties") : any;
    if (!of_a.is_object() || !of_b.is_object()) {
      fail("properties");
      return false;
    }
    Json merged = Json::object();
    for (const auto& [name, value] : of_a.items()) {
      const Merged both = merge_values(value, of_b.contains(name) ? of_b.at(name) : rest_b);
      if (!both) return false;
      merged[name] = *both;
    }
    for (const auto& [name, value] : of_b.items()) {
      if (of_a.contains(name)) continue;
      const Merged both = merge_values(value, rest_a);
      if (!both) return false;
      merged[name] = *both;
    }
    if (!merged.empty() || a.contains("properties") || b.contains("properties")) {
      out["properties"] = merged;
    }
    if (a.contains("additionalProperties") || b.contains("additionalProperties")) {
      const Merged both = merge_values(rest_a, rest_b);
      if (!both) return false;
      out["additionalProperties"] = *both;
    }
    return true;
  }

  // Schemas of the same value inside: left to allOf, which is resolved where it is compiled.
  static Merged merge_values(const Json& a, const Json& b) {
    if (a == Json(false) || b == Json(false)) return Json(false);
    if (a == Json(true) || a == b) return b;
    if (b == Json(true)) return a;
    return Json{{"allOf", Json::array({a, b})}};
  }

  // `const` is a list of one.
  static Merged constants(Json out) {
    if (!out.is_object() || !out.contains("const") || !out.contains("enum")) return out;
    const bool is_in = has(out.at("enum"), out.at("const"));
    if (!is_in) return Json(false);
    out.erase("enum");
    return out;
  }

  std::string& problem_;
};

}  // namespace

std::optional<Json> merge_schemas(const Json& a, const Json& b, std::string& problem) {
  return Merger(problem).merge(a, b);
}

}  // namespace hadal::grammar
