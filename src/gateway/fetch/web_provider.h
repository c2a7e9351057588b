#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/fetch/web_client.h"
#include "gateway/recipe/server_tools.h"

namespace hadal::fetch {

struct ProviderConfig {
  // POST {"query", "count"} gives {"results": [{"title", "url", "text" or "summary" or "content",
  // "date"?}]}. "": no search.
  std::string search_url;
  std::string key;     // sent as a Bearer token; "": none
  bool fetch = false;  // pages may be read
  uint32_t n_results = 8;
  size_t max_text_bytes = 40'000;  // of one page, as the model reads it
  ClientConfig client;
};

// Searches by a provider, and reads pages itself. Every result and error is one that a model can be
// told. Blocks; thread-safe.
class WebProvider {
 public:
  // kInvalidRequest: a configured URL is none.
  static core::Result<std::unique_ptr<WebProvider>> make(ProviderConfig config);

  bool searches() const { return !config_.search_url.empty(); }
  bool fetches() const { return config_.fetch; }

  // `arguments`: of the call, a JSON object. `limits`: whose hosts may be shown.
  recipe::ServerToolResult run(recipe::ToolKind kind, std::string_view arguments,
                               const recipe::ServerTools& limits) const;

 private:
  WebProvider(ProviderConfig config, std::unique_ptr<WebClient> client)
      : config_(std::move(config)), client_(std::move(client)) {}
  void search(std::string_view query, const recipe::ServerTools& limits,
              recipe::ServerToolResult& result) const;
  void fetch(std::string_view url, const recipe::ServerTools& limits,
             recipe::ServerToolResult& result) const;

  const ProviderConfig config_;
  const std::unique_ptr<WebClient> client_;
};

}  // namespace hadal::fetch
