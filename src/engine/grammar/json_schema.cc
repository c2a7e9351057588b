#include "engine/grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/grammar/int_range.h"
#include "engine/grammar/json_rules.h"

namespace hadal::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxNodes = 1u << 20;
constexpr uint32_t kMaxCounted = 4096;  // items or characters that are counted one by one

using Words = std::span<const std::string_view>;
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
constexpr std::string_view kStringWords[] = {"minLength", "maxLength"};
constexpr std::string_view kNumberWords[] = {"minimum", "maximum", "exclusiveMinimum",
                                             "exclusiveMaximum", "multipleOf"};
constexpr std::string_view kOtherWords[] = {"type",  "enum",  "const", "anyOf",
                                            "oneOf", "allOf", "$ref"};

constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                       "null",   "array",  "object"};

bool is_in(Words words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A name as a step of a JSON pointer.
std::string step(std::string_view name) {
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

class Compiler {
 public:
  explicit Compiler(const Json& root) : root_(root), rules_(*grammar_) {}

  core::Result<std::shared_ptr<const Grammar>> run() {
    const uint32_t top = grammar_->add_rule();
    const std::optional<uint32_t> rule = schema(root_, "#");
    if (!rule) return core::Error{core::Code::kInvalidRequest, problem_, problem_at_};
    grammar_->mark_end(grammar_->rule(grammar_->start(top), *rule));
    return std::shared_ptr<const Grammar>(grammar_);
  }

 private:
  using Rule = std::optional<uint32_t>;

  Rule fail(std::string problem, std::string at) {
    if (problem_.empty()) {
      problem_ = std::move(problem);
      problem_at_ = std::move(at);
    }
    return std::nullopt;
  }
  Rule cannot(std::string_view word, const std::string& path) {
    return fail(fmt::format("output that must keep to \"{}\" is not available here", word),
                path + "/" + step(word));
  }

  Rule schema(const Json& s, const std::string& path) {
    if (grammar_->nodes().size() > kMaxNodes) return fail("the schema is too large", path);
    if (s.is_boolean()) {
      if (s.get<bool>()) return rules_.value();
      return fail("nothing is valid here", path);
    }
    if (!s.is_object()) return fail("a schema must be an object or a boolean", path);
    for (const auto& [key, value] : s.items()) {
      const bool known = is_in(kAnnotations, key) || is_in(kObjectWords, key) ||
                         is_in(kArrayWords, key) || is_in(kStringWords, key) ||
                         is_in(kNumberWords, key) || is_in(kOtherWords, key);
      if (!known) return cannot(key, path);
    }
    for (const std::string_view word : {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"}) {
      if (s.contains(std::string(word))) return whole(s, word, path);
    }
    return typed(s, path);
  }

  // Keywords that stand for the whole of a schema: nothing else may restrict it.
  Rule whole(const Json& s, std::string_view word, const std::string& path) {
    for (const auto& [key, value] : s.items()) {
      const bool kept = key == word || is_in(kAnnotations, key) ||
                        (key == "type" && (word == "enum" || word == "const"));
      if (!kept) {
        return fail(fmt::format("\"{}\" beside \"{}\" is not available here", key, word),
                    path + "/" + step(key));
      }
    }
    const std::string at = path + "/" + std::string(word);
    const Json& value = s.at(std::string(word));
    if (word == "$ref") return reference(value, at);
    if (word == "const") return constants(Json::array({value}), s, at);
    if (!value.is_array() || value.empty()) return fail("must be a list that is not empty", at);
    if (word == "enum") return constants(value, s, at);
    if (word == "allOf" && value.size() != 1) return cannot("allOf", path);
    if (word == "oneOf" && !are_disjoint(value)) {
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

  Rule reference(const Json& ref, const std::string& at) {
    if (!ref.is_string()) return fail("must be a string", at);
    const auto name = ref.get<std::string>();
    if (const auto known = references_.find(name); known != references_.end()) return known->second;
    if (!name.starts_with('#')) return fail("only references into the same schema are read", at);
    const Json* target = nullptr;
    try {
      const Json::json_pointer pointer(name.substr(1));
      if (root_.contains(pointer)) target = &root_.at(pointer);
    } catch (const Json::exception&) {
    }
    if (target == nullptr) return fail("refers to nothing", at);
    // A rule first: what it refers to may refer back. A circle that reads nothing has no text.
    const uint32_t rule = grammar_->add_rule();
    references_.emplace(name, rule);
    const Rule inner = schema(*target, name);
    if (!inner) return std::nullopt;
    grammar_->mark_end(grammar_->rule(grammar_->start(rule), *inner));
    return rule;
  }

  static bool has_type(const Json& value, std::string_view type) {
    if (type == "integer") {
      return value.is_number_integer() ||
             (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
    }
    return (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
           (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
           (type == "array" && value.is_array()) || (type == "object" && value.is_object());
  }

  Rule constants(const Json& values, const Json& s, const std::string& at) {
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

  bool read_types(const Json& s, const std::string& path, std::vector<std::string>& out) {
    const Json& type = s.at("type");
    const Json list = type.is_array() ? type : Json::array({type});
    for (const Json& one : list) {
      if (!one.is_string() || !is_in(kTypes, one.get<std::string>())) {
        fail("is no type of JSON", path + "/type");
        return false;
      }
      out.push_back(one.get<std::string>());
    }
    return true;
  }

  Rule typed(const Json& s, const std::string& path) {
    std::vector<std::string> types;
    if (s.contains("type")) {
      if (!read_types(s, path, types)) return std::nullopt;
    } else {
      // Without a type the keywords say which values they are about.
      const auto about = [&](Words words) {
        return std::any_of(words.begin(), words.end(),
                           [&](std::string_view w) { return s.contains(std::string(w)); });
      };
      if (about(kObjectWords)) {
        types = {"object"};
      } else if (about(kArrayWords)) {
        types = {"array"};
      } else if (about(kStringWords)) {
        types = {"string"};
      } else if (about(kNumberWords)) {
        types = {"number"};
      } else {
        return rules_.value();
      }
    }
    if (types.size() == 1) return of_type(s, types[0], path);
    const uint32_t rule = grammar_->add_rule();
    for (const std::string& type : types) {
      const Rule one = of_type(s, type, path);
      if (!one) return std::nullopt;
      grammar_->mark_end(grammar_->rule(grammar_->start(rule), *one));
    }
    return rule;
  }

  Rule of_type(const Json& s, std::string_view type, const std::string& path) {
    if (type == "object") return object(s, path);
    if (type == "array") return array(s, path);
    if (type == "string") return string(s, path);
    if (type == "integer" || type == "number") return number(s, type == "integer", path);
    if (type == "boolean") return rules_.boolean();
    const uint32_t rule = grammar_->add_rule();
    grammar_->mark_end(grammar_->literal(grammar_->start(rule), "null"));
    return rule;
  }

  // A count in a keyword; `fallback` if it is not there.
  bool count(const Json& s, std::string_view word, const std::string& path, uint64_t fallback,
             uint64_t& out) {
    out = fallback;
    if (!s.contains(std::string(word))) return true;
    const Json& value = s.at(std::string(word));
    if (!value.is_number() || value.get<double>() < 0 ||
        std::floor(value.get<double>()) != value.get<double>()) {
      fail("must be a count", path + "/" + std::string(word));
      return false;
    }
    out = value.get<double>() > 1e15 ? uint64_t{1'000'000'000'000'000} : value.get<uint64_t>();
    return true;
  }

  Rule string(const Json& s, const std::string& path) {
    uint64_t low = 0, high = 0;
    if (!count(s, "minLength", path, 0, low) || !count(s, "maxLength", path, UINT64_MAX, high)) {
      return std::nullopt;
    }
    if (low > high) return fail("minLength is above maxLength", path + "/minLength");
    if (low > kMaxCounted) return cannot("minLength", path);
    if (low == 0 && high == UINT64_MAX) return rules_.string();
    // Longer strings than can be counted are left out, which is within the schema.
    const bool bounded = high != UINT64_MAX;
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(high, kMaxCounted));
    return rules_.string_of_length(static_cast<uint32_t>(low),
                                   bounded ? std::optional(most) : std::nullopt);
  }

  Rule number(const Json& s, bool whole, const std::string& path) {
    std::optional<double> low, high;
    bool bounded = false;
    for (const std::string_view word : kNumberWords) {
      if (!s.contains(std::string(word))) continue;
      if (!s.at(std::string(word)).is_number())
        return fail("must be a number", path + "/" + std::string(word));
      const auto value = s.at(std::string(word)).get<double>();
      if (word == "multipleOf") {
        if (!(whole && value == 1)) return cannot(word, path);
        continue;
      }
      bounded = true;
      const bool exclusive = word.starts_with("exclusive");
      if (word.ends_with("inimum")) {
        const double at = whole ? (exclusive ? std::floor(value) + 1 : std::ceil(value)) : value;
        if (!whole && exclusive) return cannot(word, path);
        low = std::max(low.value_or(at), at);
      } else {
        const double at = whole ? (exclusive ? std::ceil(value) - 1 : std::floor(value)) : value;
        if (!whole && exclusive) return cannot(word, path);
        high = std::min(high.value_or(at), at);
      }
    }
    if (!bounded) return whole ? rules_.integer() : rules_.number();
    // Bounds of numbers with a point are kept by whole numbers alone: fewer texts, all valid.
    constexpr double kMost = static_cast<double>(kMaxWhole);
    const double from = std::max(std::ceil(low.value_or(-kMost)), -kMost);
    const double to = std::min(std::floor(high.value_or(kMost)), kMost);
    if (from > to) {
      return fail("no whole number within reach is between minimum and maximum", path);
    }
    const uint32_t rule = grammar_->add_rule();
    grammar_->mark_end(add_int_range(*grammar_, grammar_->start(rule), static_cast<int64_t>(from),
                                     static_cast<int64_t>(to)));
    return rule;
  }

  uint32_t space(uint32_t from) { return grammar_->rule(from, rules_.space()); }

  Rule array(const Json& s, const std::string& path) {
    if (s.contains("uniqueItems") && s.at("uniqueItems") != Json(false)) {
      return cannot("uniqueItems", path);
    }
    std::vector<uint32_t> items;
    if (s.contains("prefixItems")) {
      const Json& list = s.at("prefixItems");
      if (!list.is_array()) return fail("must be a list", path + "/prefixItems");
      for (size_t i = 0; i < list.size(); ++i) {
        const Rule item = schema(list[i], fmt::format("{}/prefixItems/{}", path, i));
        if (!item) return std::nullopt;
        items.push_back(*item);
      }
    }
    uint64_t low = 0, high = 0;
    if (!count(s, "minItems", path, 0, low) || !count(s, "maxItems", path, UINT64_MAX, high)) {
      return std::nullopt;
    }
    Rule rest;
    const bool closed = s.contains("items") && s.at("items") == Json(false);
    if (closed) {
      high = std::min<uint64_t>(high, items.size());
    } else if (!(rest = s.contains("items") ? schema(s.at("items"), path + "/items")
                                            : Rule(rules_.value()))) {
      return std::nullopt;
    }
    if (low > high) return fail("minItems is above maxItems", path + "/minItems");
    if (low > kMaxCounted) return cannot("minItems", path);
    const bool bounded = high != UINT64_MAX;
    const uint64_t counted =
        bounded ? std::min<uint64_t>(high, kMaxCounted) : std::max<uint64_t>(low, items.size());
    return list(items, rest, low, counted, bounded);
  }

  // `counted` items one by one, then any number more unless `bounded`.
  uint32_t list(const std::vector<uint32_t>& items, Rule rest, uint64_t low, uint64_t counted,
                bool bounded) {
    Grammar& g = *grammar_;
    const uint32_t rule = g.add_rule();
    uint32_t at = space(g.literal(g.start(rule), "["));
    const uint32_t close = g.add_node();
    g.mark_end(g.literal(close, "]"));
    if (low == 0) g.free(at, close);
    const auto item = [&](uint64_t i) { return i < items.size() ? items[i] : *rest; };
    for (uint64_t i = 0; i < counted; ++i) {
      if (i > 0) at = space(g.literal(at, ","));
      at = space(g.rule(at, item(i)));
      if (i + 1 >= low) g.free(at, close);
    }
    if (!bounded && rest) {
      const uint32_t more = counted == 0 ? at : space(g.literal(at, ","));
      const uint32_t behind = space(g.rule(more, *rest));
      g.free(behind, close);
      g.free(space(g.literal(behind, ",")), more);
    }
    return rule;
  }

  struct Member {
    std::string name;
    uint32_t value = 0;
    bool required = false;
  };

  Rule object(const Json& s, const std::string& path) {
    std::set<std::string> required;
    if (s.contains("required")) {
      if (!s.at("required").is_array()) return fail("must be a list", path + "/required");
      for (const Json& name : s.at("required")) {
        if (!name.is_string()) return fail("must be a list of names", path + "/required");
        required.insert(name.get<std::string>());
      }
    }
    const bool closed =
        s.contains("additionalProperties") && s.at("additionalProperties") == Json(false);
    Rule rest;
    if (!closed) {
      rest = s.contains("additionalProperties")
                 ? schema(s.at("additionalProperties"), path + "/additionalProperties")
                 : Rule(rules_.value());
      if (!rest) return std::nullopt;
    }
    std::vector<Member> members;
    if (s.contains("properties")) {
      const Json& list = s.at("properties");
      if (!list.is_object()) return fail("must be an object", path + "/properties");
      for (const auto& [name, inner] : list.items()) {
        const Rule value = schema(inner, path + "/properties/" + step(name));
        if (!value) return std::nullopt;
        members.push_back({name, *value, required.erase(name) > 0});
      }
    }
    for (const std::string& name : required) {
      if (!rest) return fail("requires a property that is not allowed", path + "/required");
      members.push_back({name, *rest, true});
    }
    uint64_t low = 0, high = 0;
    if (!count(s, "minProperties", path, 0, low) ||
        !count(s, "maxProperties", path, UINT64_MAX, high)) {
      return std::nullopt;
    }
    if (members.empty() && rest) {
      if (low > 1) return cannot("minProperties", path);
      if (high != UINT64_MAX) return cannot("maxProperties", path);
      return map(*rest, low);
    }
    const auto n_required = static_cast<uint64_t>(std::count_if(
        members.begin(), members.end(), [](const Member& member) { return member.required; }));
    if (low > n_required) return cannot("minProperties", path);
    if (high < members.size()) return cannot("maxProperties", path);
    return members_in_order(members);
  }

  // Any names.
  uint32_t map(uint32_t value, uint64_t low) {
    Grammar& g = *grammar_;
    const uint32_t rule = g.add_rule();
    const uint32_t open = space(g.literal(g.start(rule), "{"));
    const uint32_t close = g.add_node();
    g.mark_end(g.literal(close, "}"));
    if (low == 0) g.free(open, close);
    const uint32_t member = g.add_node();
    g.free(open, member);
    uint32_t at = space(g.rule(member, rules_.string()));
    at = space(g.rule(space(g.literal(at, ":")), value));
    g.free(at, close);
    g.free(space(g.literal(at, ",")), member);
    return rule;
  }

  uint32_t members_in_order(const std::vector<Member>& members) {
    Grammar& g = *grammar_;
    const uint32_t rule = g.add_rule();
    uint32_t first = space(g.literal(g.start(rule), "{"));  // nothing was written yet
    uint32_t rest = g.add_node();                           // a comma comes before the next
    for (const Member& member : members) {
      const uint32_t name = g.add_node();
      g.free(first, name);
      g.free(space(g.literal(rest, ",")), name);
      const uint32_t colon = space(g.literal(name, Json(member.name).dump()));
      const uint32_t behind = space(g.rule(space(g.literal(colon, ":")), member.value));
      const uint32_t next_first = g.add_node();
      if (!member.required) {
        g.free(first, next_first);
        g.free(rest, behind);
      }
      first = next_first;
      rest = behind;
    }
    g.mark_end(g.literal(first, "}"));
    g.mark_end(g.literal(rest, "}"));
    return rule;
  }

  // ---- oneOf ----

  const Json& resolve(const Json& s) const {
    const Json* at = &s;
    for (int i = 0; i < 16 && at->is_object() && at->contains("$ref"); ++i) {
      const Json& ref = at->at("$ref");
      if (!ref.is_string() || !ref.get<std::string>().starts_with('#')) break;
      try {
        at = &root_.at(Json::json_pointer(ref.get<std::string>().substr(1)));
      } catch (const Json::exception&) {
        break;
      }
    }
    return *at;
  }

  static std::set<std::string> kinds(const Json& s) {
    std::set<std::string> out;
    const auto add = [&](std::string type) { out.insert(type == "integer" ? "number" : type); };
    if (!s.is_object()) return out;
    if (s.contains("const")) {
      add(s.at("const").type_name());
    } else if (s.contains("enum") && s.at("enum").is_array()) {
      for (const Json& value : s.at("enum")) add(value.type_name());
    } else if (s.contains("type")) {
      const Json list = s.at("type").is_array() ? s.at("type") : Json::array({s.at("type")});
      for (const Json& type : list) {
        if (type.is_string()) add(type.get<std::string>());
      }
    }
    return out;
  }

  // The constants that a value may have; empty: not a list of constants.
  static Json constants_of(const Json& s) {
    if (!s.is_object()) return Json::array();
    if (s.contains("const")) return Json::array({s.at("const")});
    if (s.contains("enum") && s.at("enum").is_array()) return s.at("enum");
    return Json::array();
  }

  static bool share(const Json& a, const Json& b) {
    return std::any_of(a.begin(), a.end(), [&](const Json& value) {
      return std::find(b.begin(), b.end(), value) != b.end();
    });
  }

  static bool requires_name(const Json& s, const std::string& name) {
    return s.contains("required") && s.at("required").is_array() &&
           std::find(s.at("required").begin(), s.at("required").end(), Json(name)) !=
               s.at("required").end();
  }

  bool differ(const Json& a_ref, const Json& b_ref) const {
    const Json &a = resolve(a_ref), &b = resolve(b_ref);
    const auto ka = kinds(a), kb = kinds(b);
    if (ka.empty() || kb.empty()) return false;
    if (std::none_of(ka.begin(), ka.end(), [&](const std::string& k) { return kb.contains(k); })) {
      return true;
    }
    const Json ca = constants_of(a), cb = constants_of(b);
    if (!ca.empty() && !cb.empty()) return !share(ca, cb);
    if (!a.contains("properties") || !b.contains("properties") || !a.at("properties").is_object() ||
        !b.at("properties").is_object()) {
      return false;
    }
    for (const auto& [name, inner] : a.at("properties").items()) {
      if (!b.at("properties").contains(name)) continue;
      const Json x = constants_of(inner), y = constants_of(b.at("properties").at(name));
      if (!x.empty() && !y.empty() && !share(x, y) && requires_name(a, name) &&
          requires_name(b, name)) {
        return true;
      }
    }
    return false;
  }

  bool are_disjoint(const Json& branches) const {
    for (size_t i = 0; i < branches.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (!differ(branches[i], branches[k])) return false;
      }
    }
    return true;
  }

  const Json& root_;
  const std::shared_ptr<Grammar> grammar_ = std::make_shared<Grammar>();
  JsonRules rules_;
  std::map<std::string, uint32_t> references_;
  std::string problem_, problem_at_;
};

}  // namespace

core::Result<std::shared_ptr<const Grammar>> compile_json_schema(std::string_view schema) {
  const Json root = Json::parse(schema, nullptr, false);
  if (root.is_discarded()) return core::Error{core::Code::kInvalidRequest, "the schema is no JSON"};
  return Compiler(root).run();
}

std::shared_ptr<const Grammar> any_json_object() {
  auto grammar = std::make_shared<Grammar>();
  const uint32_t top = grammar->add_rule();
  JsonRules rules(*grammar);
  grammar->mark_end(grammar->rule(grammar->start(top), rules.object()));
  return grammar;
}

}  // namespace hadal::grammar
