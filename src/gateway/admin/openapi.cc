#include "gateway/admin/openapi.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/core/check.h"
#include "gateway/admin/assets.h"

namespace hadal::admin {
namespace {

using Json = nlohmann::ordered_json;

std::string lower(std::string_view method) {
  std::string out(method);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

Json undocumented(std::string_view pattern) {
  Json operation = {{"x-undocumented", true},
                    {"responses", {{"default", {{"description", "See the documentation."}}}}}};
  for (size_t at = pattern.find('{'); at != std::string_view::npos;
       at = pattern.find('{', at + 1)) {
    const std::string name(pattern.substr(at + 1, pattern.find('}', at) - at - 1));
    operation["parameters"].push_back(
        {{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  return operation;
}

}  // namespace

std::string openapi_document(const http::Router& router, std::string_view version,
                             uint32_t n_vocabulary) {
  Json document = Json::parse(openapi_text(), nullptr, false);
  HADAL_CHECK(document.is_object(), "src/gateway/admin/openapi.json is no JSON object");
  const Json described = std::move(document["paths"]);
  Json paths = Json::object();
  for (const http::Router::Entry& route : router.entries()) {
    const std::string method = lower(route.method);
    Json& path = paths[std::string(route.pattern)];
    const auto known = described.find(std::string(route.pattern));
    path[method] = known != described.end() && known->contains(method)
                       ? known->at(method)
                       : undocumented(route.pattern);
  }
  document["paths"] = std::move(paths);
  document["info"]["version"] = std::string(version);
  document["components"]["schemas"]["TokenId"]["maximum"] = n_vocabulary - 1;
  return document.dump();
}

}  // namespace hadal::admin
