#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gateway/recipe/request_rules.h"

namespace hadal::recipe {

// Tools that the server runs itself (web search, web fetch). The model sees a function of that
// name; its calls are answered by the server, and generation goes on with the results.

inline constexpr std::string_view kWebSearchName = "web_search", kWebFetchName = "web_fetch";

inline bool is_server_tool(ToolKind kind) {
  return kind == ToolKind::kWebSearch || kind == ToolKind::kWebFetch;
}

// Fills name, description and parameters of a tool of kind kWebSearch or kWebFetch.
void make_server_tool(ToolKind kind, ToolInput& input);

// The limits that a client set on its server tool: max_uses, allowed_domains, blocked_domains
// (Messages; Responses has filters.allowed_domains). kInvalidRequest: both lists are given, or a
// wrong value; `path` is the tool's.
core::Status read_server_limits(JsonValue tool, const std::string& path, ServerTools& limits);

// May a page of this host be shown? A listed domain stands for its subdomains too.
bool is_allowed_host(std::string_view host, const ServerTools& limits);

// One found page.
struct WebResult {
  std::string title, url, text;
  std::string age;  // when it was written, as the provider says; ""
};

// What a server tool gave, for the model and for the client. `error` is a code of the Messages
// dialect: "unavailable", "max_uses_exceeded", "invalid_tool_input", "url_not_accessible", ...; ""
// if it worked.
struct ServerToolResult {
  ToolKind kind = ToolKind::kWebSearch;
  std::vector<WebResult> results;
  std::string error;
  std::string error_text;  // for the model
};

// The result as the model reads it.
std::string server_result_text(const ServerToolResult& result);

}  // namespace hadal::recipe
