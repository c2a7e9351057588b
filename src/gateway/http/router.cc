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
  const size_t index = routes_.size();
  const Route& route =
      routes_.emplace_back(Route{std::string(method), std::string(pattern), std::move(endpoint)});
  (route.pattern.find('{') == std::string::npos ? exact_[route.pattern] : with_params_)
      .push_back(index);
}

std::vector<Router::Entry> Router::entries() const {
  std::vector<Entry> all;
  for (const Route& route : routes_) all.push_back({route.method, route.pattern});
  return all;
}

Router::Match Router::match(std::string_view method, std::string_view path) const {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  Match found;
  std::vector<std::pair<std::string, std::string>> params;
  const auto take = [&](const Route& route) {
    if (route.method == method || (method == "HEAD" && route.method == "GET")) {
      found = {&route.endpoint, route.pattern, std::move(params), {}};
      return true;
    }
    found.pattern = route.pattern;
    found.allow += (found.allow.empty() ? "" : ", ") + route.method;
    return false;
  };
  if (const auto exact = exact_.find(path); exact != exact_.end()) {
    for (const size_t index : exact->second) {
      if (take(routes_[index])) return found;
    }
  }
  for (const size_t index : with_params_) {
    if (matches(routes_[index].pattern, path, params) && take(routes_[index])) return found;
  }
  return found;
}

}  // namespace hadal::http
