#include "gateway/http/router.h"

#include <algorithm>

namespace hadal::http {
namespace {

std::string_view next_segment(std::string_view& path) {
  path.remove_prefix(1);  // '/'
  const size_t end = std::min(path.find('/'), path.size());
  const std::string_view segment = path.substr(0, end);
  path.remove_prefix(end);
  return segment;
}

bool matches(std::string_view pattern, std::string_view path,
             std::vector<std::pair<std::string, std::string>>& params) {
  params.clear();
  while (pattern.starts_with('/') && path.starts_with('/')) {
    const std::string_view want = next_segment(pattern);
    const std::string_view have = next_segment(path);
    if (want.starts_with('{') && want.ends_with('}')) {
      if (have.empty()) return false;
      params.emplace_back(want.substr(1, want.size() - 2), have);
    } else if (want != have) {
      return false;
    }
  }
  return pattern.empty() && path.empty();
}

}  // namespace

void Router::add(std::string_view method, std::string_view pattern, Endpoint endpoint) {
  routes_.push_back({std::string(method), std::string(pattern), std::move(endpoint)});
}

Router::Match Router::match(std::string_view method, std::string_view path) const {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  Match found;
  std::vector<std::pair<std::string, std::string>> params;
  for (const Route& route : routes_) {
    if (!matches(route.pattern, path, params)) continue;
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      return {&route.endpoint, route.pattern, std::move(params), {}};
    }
    found.pattern = route.pattern;
    found.allow += (found.allow.empty() ? "" : ", ") + route.method;
  }
  return found;
}

}  // namespace hadal::http
