#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
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
  Match match(std::string_view method, std::string_view path) const;

 private:
  struct Route {
    std::string method;
    std::string pattern;
    Endpoint endpoint;
  };
  std::vector<Route> routes_;
};

}  // namespace hadal::http
