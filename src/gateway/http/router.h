#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gateway/http/exchange.h"

namespace hadal::http {

// A table of routes: method and path pattern ("/v1/responses/{id}/cancel") to an endpoint. HEAD
// follows GET.
class Router {
 public:
  using Endpoint = std::function<void(std::shared_ptr<Exchange>, const Request&)>;

  struct Match {
    const Endpoint* endpoint = nullptr;
    std::string_view pattern;  // label of the route for metrics; "" if none matched
    std::vector<std::pair<std::string, std::string>> params;
    std::string allow;  // with a known path and an unknown method: the methods it has
  };

  void add(std::string_view method, std::string_view pattern, Endpoint endpoint);
  // All routes in the order in which they were added; valid until the next add().
  struct Entry {
    std::string_view method, pattern;
  };
  std::vector<Entry> entries() const;
  Match match(std::string_view method, std::string_view path) const;

 private:
  struct Route {
    std::string method;
    std::string pattern;
    Endpoint endpoint;
  };
  std::deque<Route> routes_;                                         // texts stay where they are
  std::unordered_map<std::string_view, std::vector<size_t>> exact_;  // patterns without {}, by path
  std::vector<size_t> with_params_;
};

}  // namespace hadal::http
