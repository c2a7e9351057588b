#include "engine/grammar/schema_disjoint.h"

#include <algorithm>
#include <set>
#include <string>

namespace hadal::grammar {

using Json = nlohmann::ordered_json;

namespace {

const Json& resolve(const Json& s, const Json& root) {
  const Json* at = &s;
  for (int i = 0; i < 16 && at->is_object() && at->contains("$ref"); ++i) {
    const Json& ref = at->at("$ref");
    if (!ref.is_string() || !ref.get<std::string>().starts_with('#')) break;
    try {
      at = &root.at(Json::json_pointer(ref.get<std::string>().substr(1)));
    } catch (const Json::exception&) {
      break;
    }
  }
  return *at;
}

std::set<std::string> kinds(const Json& s) {
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
Json constants_of(const Json& s) {
  if (!s.is_object()) return Json::array();
  if (s.contains("const")) return Json::array({s.at("const")});
  if (s.contains("enum") && s.at("enum").is_array()) return s.at("enum");
  return Json::array();
}

bool share(const Json& a, const Json& b) {
  return std::any_of(a.begin(), a.end(), [&](const Json& value) {
    return std::find(b.begin(), b.end(), value) != b.end();
  });
}

bool requires_name(const Json& s, const std::string& name) {
  return s.contains("required") && s.at("required").is_array() &&
         std::find(s.at("required").begin(), s.at("required").end(), Json(name)) !=
             s.at("required").end();
}

bool differ(const Json& a_ref, const Json& b_ref, const Json& root) {
  const Json &a = resolve(a_ref, root), &b = resolve(b_ref, root);
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

constexpr size_t kMaxBranches = 256;  // every pair is looked at

}  // namespace

bool are_disjoint(const Json& branches, const Json& root) {
  if (branches.size() > kMaxBranches) return false;
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (!differ(branches[i], branches[k], root)) return false;
    }
  }
  return true;
}

}  // namespace hadal::grammar
