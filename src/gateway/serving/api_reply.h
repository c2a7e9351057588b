#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/http/exchange.h"
#include "gateway/recipe/json_value.h"
#include "gateway/store/conversations.h"

namespace hadal::serving {

using TenantOf = std::function<std::string(const http::Request&)>;

// A request to one of the store's paths: who asks, for which id, and the way to answer. Copies
// share the exchange.
struct Reply {
  std::shared_ptr<http::Exchange> exchange;
  std::string tenant = {};
  std::string id = {};       // {id} of the path
  std::string item_id = {};  // {item} of the path
  void json(std::string body) const;
  void error(const core::Error& error) const;
  const http::Request& request() const { return exchange->request(); }
};

// The query parameters of a list: limit (1 to `most`), order, after. Errors name the parameter.
core::Result<store::Page> read_page(const http::Request& request, uint32_t default_limit,
                                    uint32_t most);

// `metadata` of a body as JSON, or `absent`: at most 16 texts of 512 characters, keys of 64.
core::Result<std::string> checked_metadata(recipe::JsonValue body, std::string_view absent);

// {"object":"list","data":[...],"first_id","last_id","has_more"} of JSON entries and their ids.
std::string list_json(const std::vector<std::string>& entries, const std::vector<std::string>& ids,
                      bool has_more);

}  // namespace hadal::serving
