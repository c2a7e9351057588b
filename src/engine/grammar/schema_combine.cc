#include <algorithm>
#include <string>

#include "engine/grammar/automaton.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_disjoint.h"
#include "engine/grammar/schema_merge.h"

// Keywords that combine schemas, beside others: made one schema, or one for each branch.
namespace hadal::grammar {

using Json = nlohmann::ordered_json;

namespace {

constexpr uint32_t kMaxFlat = 32;
constexpr size_t kMaxCombinedBytes = 4u << 20;  // of all combined schemas, written out

// What is true of properties that nothing has evaluated is true of all others once everything that
// evaluates stands in one schema.
Json closed(Json s, const Json* unevaluated) {
  if (unevaluated != nullptr && s.is_object() && !s.contains("additionalProperties")) {
    s["additionalProperties"] = *unevaluated;
  }
  return s;
}

}  // namespace

std::optional<Json> SchemaCompiler::merged(const Json& a, const Json& b, const std::string& path) {
  std::string problem;
  auto out = merge_schemas(a, b, problem);
  if (!out) {
    fail("\"" + problem + "\" of schemas that hold together is not available here",
         path + "/" + pointer_step(problem));
  }
  return out;
}

std::optional<Json> SchemaCompiler::flat(const Json& s, const std::string& path, uint32_t depth) {
  if (s.is_boolean()) return s;
  if (!s.is_object()) {
    fail("a schema must be an object or a boolean", path);
    return std::nullopt;
  }
  if (depth > kMaxFlat) {
    fail("schemas that hold together are nested too deeply, or refer to themselves", path);
    return std::nullopt;
  }
  if (!has_known_words(s, path)) return std::nullopt;
  Json own = s;
  own.erase("$ref");
  own.erase("allOf");
  own.erase("unevaluatedProperties");
  std::optional<Json> out = own;
  const auto add = [&](const Json& other, const std::string& at) {
    const auto part = flat(other, at, depth + 1);
    if (!part) return false;
    out = merged(*out, *part, path);
    return out.has_value();
  };
  if (s.contains("$ref")) {
    const Json& reference = s.at("$ref");
    const Json* target = reference.is_string() ? find(reference.get<std::string>()) : nullptr;
    if (target == nullptr) {
      fail("refers to nothing in this schema", path + "/$ref");
      return std::nullopt;
    }
    if (!add(*target, reference.get<std::string>())) return std::nullopt;
  }
  if (s.contains("allOf")) {
    const Json& list = s.at("allOf");
    if (!list.is_array() || list.empty()) {
      fail("must be a list that is not empty", path + "/allOf");
      return std::nullopt;
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (!add(list[i], path + "/allOf/" + std::to_string(i))) return std::nullopt;
    }
  }
  if (!s.contains("unevaluatedProperties") || !out->is_object()) return out;
  // Branches may evaluate more: it waits until they are chosen.
  const Json& unevaluated = s.at("unevaluatedProperties");
  if (!out->contains("anyOf") && !out->contains("oneOf")) return closed(*out, &unevaluated);
  (*out)["unevaluatedProperties"] = unevaluated;
  return out;
}

SchemaCompiler::Rule SchemaCompiler::combined(const Json& s, const std::string& path) {
  std::string key = s.dump();
  combined_bytes_ += key.size();
  if (combined_bytes_ > kMaxCombinedBytes) return fail("the schema is too large", path);
  const auto [known, is_new] = combined_.try_emplace(std::move(key), 0);
  if (!is_new) return known->second;
  // A rule first: what it holds may come to the same again.
  const uint32_t rule = grammar_->add_rule();
  known->second = rule;
  const auto one = flat(s, path, 0);
  if (!one) return std::nullopt;
  const Rule inner = schema(*one, path);
  if (!inner) return std::nullopt;
  grammar_->mark_end(grammar_->rule(grammar_->start(rule), *inner));
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::branches(const Json& s, const std::string& word,
                                              const std::string& path) {
  const Json& list = s.at(word);
  const std::string at = path + "/" + word;
  if (!list.is_array() || list.empty()) return fail("must be a list that is not empty", at);
  if (word == "oneOf" && !are_disjoint(list, root_)) {
    return fail("the branches of \"oneOf\" must differ in type or in a required constant", at);
  }
  Json base = s;
  base.erase(word);
  base.erase("unevaluatedProperties");
  const Json* unevaluated =
      s.contains("unevaluatedProperties") ? &s.at("unevaluatedProperties") : nullptr;
  const uint32_t rule = grammar_->add_rule();
  bool any = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = at + "/" + std::to_string(i);
    const auto branch = flat(list[i], place, 0);
    if (!branch) return std::nullopt;
    const auto both = merged(base, *branch, place);
    if (!both) return std::nullopt;
    if (*both == Json(false)) continue;  // the branch and the rest exclude one another
    const Rule inner = schema(closed(*both, unevaluated), place);
    if (!inner) return std::nullopt;
    grammar_->mark_end(grammar_->rule(grammar_->start(rule), *inner));
    any = true;
  }
  if (!any) return fail("no branch agrees with the keywords beside it", at);
  return rule;
}

// The values of an enum or const that fit the keywords beside it: a grammar of these judges.
SchemaCompiler::Rule SchemaCompiler::fitting(const Json& s, const std::string& word,
                                             const std::string& path) {
  const std::string at = path + "/" + word;
  const Json values = word == "const" ? Json::array({s.at(word)}) : s.at(word);
  if (!values.is_array()) return fail("must be a list that is not empty", at);
  Json rest = s;
  rest.erase(word);
  auto judge = std::make_shared<Grammar>();
  const uint32_t top = judge->add_rule();
  JsonRules rules(*judge);
  SchemaCompiler compiler(*judge, rules, root_);
  const Rule rule = compiler.schema(rest, path);
  if (!rule) {
    const core::Error problem = compiler.problem();
    return fail(problem.message, problem.param);
  }
  judge->mark_end(judge->rule(judge->start(top), *rule));
  Json fitting = Json::array();
  if (const auto finished = finish(std::move(judge))) {
    Automaton automaton(*finished);
    for (const Json& value : values) {
      if (automaton.accepts(automaton.next(automaton.start(), value.dump()))) {
        fitting.push_back(value);
      }
    }
  }
  if (fitting.empty()) return fail("none of the values fits the keywords beside it", at);
  return constants(fitting, Json::object(), at);
}

}  // namespace hadal::grammar
