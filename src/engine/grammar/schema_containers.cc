#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/grammar/schema_compiler.h"

namespace hadal::grammar {

using Json = nlohmann::ordered_json;

SchemaCompiler::Rule SchemaCompiler::array(const Json& s, const std::string& path) {
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

uint32_t SchemaCompiler::list(const std::vector<uint32_t>& items, Rule rest, uint64_t low,
                              uint64_t counted, bool bounded) {
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
    // Not `at` itself, from which an empty list may close.
    const uint32_t more = counted == 0 ? g.add_node() : space(g.literal(at, ","));
    if (counted == 0) g.free(at, more);
    const uint32_t behind = space(g.rule(more, *rest));
    g.free(behind, close);
    g.free(space(g.literal(behind, ",")), more);
  }
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::object(const Json& s, const std::string& path) {
  std::set<std::string> required;
  if (s.contains("required")) {
    if (!s.at("required").is_array()) return fail("must be a list", path + "/required");
    for (const Json& name : s.at("required")) {
      if (!name.is_string()) return fail("must be a list of names", path + "/required");
      required.insert(name.get<std::string>());
    }
  }
  // Nothing else evaluates properties: what stands for the whole of a schema stands alone.
  const std::string others =
      s.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  const bool closed = s.contains(others) && s.at(others) == Json(false);
  Rule rest;
  if (!closed) {
    rest = s.contains(others) ? schema(s.at(others), path + "/" + others) : Rule(rules_.value());
    if (!rest) return std::nullopt;
  }
  std::vector<Member> members;
  bool excludes = false;  // a name that may not be there: so no map of any names
  if (s.contains("properties")) {
    const Json& list = s.at("properties");
    if (!list.is_object()) return fail("must be an object", path + "/properties");
    for (const auto& [name, inner] : list.items()) {
      if (inner == Json(false)) {  // not there
        excludes = true;
        if (!required.contains(name)) continue;
        return fail("requires a property that is not allowed", path + "/required");
      }
      const Rule value = schema(inner, path + "/properties/" + pointer_step(name));
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
  if (members.empty() && rest && !excludes) {
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

uint32_t SchemaCompiler::map(uint32_t value, uint64_t low) {
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

uint32_t SchemaCompiler::members_in_order(const std::vector<Member>& members) {
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

}  // namespace hadal::grammar
