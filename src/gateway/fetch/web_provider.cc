#include "gateway/fetch/web_provider.h"

#include <algorithm>

#include <fmt/format.h>

#include "gateway/fetch/page_text.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/text_assembler.h"

namespace hadal::fetch {
namespace {

constexpr size_t kMaxQueryBytes = 1024;

void fail(recipe::ServerToolResult& result, std::string_view code, std::string text) {
  result.results.clear();
  result.error = code;
  result.error_text = std::move(text);
}

// Valid UTF-8 of at most `most` bytes.
std::string cut_text(std::string_view text, size_t most) {
  std::string out;
  const bool whole = text.size() <= most;
  recipe::append_utf8(out, text.substr(0, most), whole);
  if (!whole) out += "\n[The rest of the page is left out.]";
  return out;
}

bool is_type(std::string_view content_type, std::string_view prefix) {
  return content_type.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), content_type.begin(), [](char want, char c) {
           return want == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
         });
}

}  // namespace

core::Result<std::unique_ptr<WebProvider>> WebProvider::make(ProviderConfig config) {
  if (!config.search_url.empty()) {
    if (const auto url = parse_url(config.search_url); !url) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("web.search-url: {}", url.error().message), "web.search-url"};
    }
  }
  HADAL_TRY(auto client, WebClient::make(config.client));
  return std::unique_ptr<WebProvider>(new WebProvider(std::move(config), std::move(client)));
}

recipe::ServerToolResult WebProvider::run(recipe::ToolKind kind, std::string_view arguments,
                                          const recipe::ServerTools& limits) const {
  recipe::ServerToolResult result;
  result.kind = kind;
  const bool searching = kind == recipe::ToolKind::kWebSearch;
  recipe::JsonDoc doc;
  const std::string_view wanted =
      doc.parse(arguments) ? doc.root()[searching ? "query" : "url"].str() : std::string_view();
  if (wanted.empty()) {
    fail(result, "invalid_tool_input",
         fmt::format("the call needs a {}", searching ? "query" : "url"));
  } else if (searching && wanted.size() > kMaxQueryBytes) {
    fail(result, "query_too_long", fmt::format("a query may have {} bytes", kMaxQueryBytes));
  } else if (searching) {
    search(wanted, limits, result);
  } else {
    fetch(wanted, limits, result);
  }
  return result;
}

void WebProvider::search(std::string_view query, const recipe::ServerTools& limits,
                         recipe::ServerToolResult& result) const {
  std::string body = R"({"query":)";
  recipe::append_json_string(body, query);
  body += fmt::format(R"(,"count":{}}})", config_.n_results);
  WebClient::Headers headers;
  if (!config_.key.empty()) headers.emplace_back("Authorization", "Bearer " + config_.key);
  const auto reply = client_->post(config_.search_url, "application/json", body, headers);
  if (!reply) return fail(result, "unavailable", "the search is not available now");
  recipe::JsonDoc doc;
  if (reply->status == 429) return fail(result, "too_many_requests", "too many searches; wait");
  if (reply->status != 200 || reply->truncated || !doc.parse(reply->body) ||
      !doc.root()["results"].is_array()) {
    return fail(result, "unavailable", "the search gave no answer that can be read");
  }
  for (const recipe::JsonValue found : doc.root()["results"]) {
    if (result.results.size() == config_.n_results) break;
    const auto url = parse_url(found["url"].str());
    if (!url || !recipe::is_allowed_host(url->host, limits)) continue;
    recipe::WebResult& page = result.results.emplace_back();
    page.url = found["url"].str();
    page.title = found["title"].str();
    page.age = found["date"].str();
    for (const std::string_view key : {"text", "content", "summary"}) {
      if (page.text.empty()) page.text = cut_text(found[key].str(), config_.max_text_bytes);
    }
  }
}

void WebProvider::fetch(std::string_view text, const recipe::ServerTools& limits,
                        recipe::ServerToolResult& result) const {
  const auto url = parse_url(text);
  if (!url) return fail(result, "invalid_tool_input", url.error().message);
  if (!recipe::is_allowed_host(url->host, limits)) {
    return fail(result, "url_not_allowed", "pages of this host may not be read");
  }
  const auto reply = client_->get(text);
  if (!reply) return fail(result, "url_not_accessible", reply.error().message);
  // A redirect may have led to a host that the client of the API does not want.
  const auto end = parse_url(reply->url);
  if (!end || !recipe::is_allowed_host(end->host, limits)) {
    return fail(result, "url_not_allowed", "the page leads to a host that may not be read");
  }
  if (reply->status != 200) {
    return fail(result, "url_not_accessible",
                fmt::format("the page answers with status {}", reply->status));
  }
  recipe::WebResult page;
  page.url = reply->url;
  if (is_type(reply->content_type, "text/html") ||
      is_type(reply->content_type, "application/xhtml")) {
    PageText read = html_to_text(reply->body);
    page.title = cut_text(read.title, 1000);
    page.text = cut_text(read.text, config_.max_text_bytes);
  } else if (is_type(reply->content_type, "text/") ||
             is_type(reply->content_type, "application/json")) {
    page.text = cut_text(reply->body, config_.max_text_bytes);
  } else {
    return fail(result, "unsupported_content_type",
                "the page is no text; only text and HTML can be read");
  }
  result.results.push_back(std::move(page));
}

}  // namespace hadal::fetch
