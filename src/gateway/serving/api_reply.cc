#include "gateway/serving/api_reply.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::serving {
namespace {

constexpr size_t kMostMetadata = 16, kLongestKey = 64, kLongestValue = 512;

size_t n_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

}  // namespace

void Reply::json(std::string body) const {
  exchange->respond({200, "application/json", {}, std::move(body)});
}

void Reply::error(const core::Error& error) const {
  http::Response response{recipe::http_status(error.code),
                          "application/json",
                          {},
                          recipe::error_body(error, recipe::Api::kResponses, false)};
  if (response.status == 429 || response.status == 503)
    response.headers.push_back({"Retry-After", "1"});
  exchange->respond(std::move(response));
}

core::Result<store::Page> read_page(const http::Request& request, uint32_t default_limit,
                                    uint32_t most) {
  store::Page page;
  page.limit = default_limit;
  if (const auto limit = request.query_param("limit")) {
    const char* end = limit->data() + limit->size();
    const auto read = std::from_chars(limit->data(), end, page.limit);
    if (read.ec != std::errc() || read.ptr != end || page.limit < 1 || page.limit > most) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("limit: must be a number from 1 to {}", most), "limit"};
    }
  }
  if (const auto order = request.query_param("order")) {
    if (*order != "asc" && *order != "desc") {
      return core::Error{core::Code::kInvalidRequest, "order: must be asc or desc", "order"};
    }
    page.descending = *order == "desc";
  }
  page.after = request.query_param("after").value_or("");
  return page;
}

core::Result<std::string> checked_metadata(recipe::JsonValue body, std::string_view absent) {
  if (!body.is_object()) return recipe::invalid("the body must be a JSON object", "");
  const recipe::JsonValue metadata = body["metadata"];
  if (metadata.absent_or_null()) return std::string(absent);
  if (!metadata.is_object() || metadata.size() > kMostMetadata) {
    return recipe::invalid(
        fmt::format("metadata: must be an object of at most {} texts", kMostMetadata), "metadata");
  }
  std::string wrong;
  recipe::for_each_member(metadata, [&](std::string_view key, recipe::JsonValue value) {
    if (!value.is_string() || n_characters(value.str()) > kLongestValue ||
        n_characters(key) > kLongestKey)
      wrong = fmt::format("metadata.{}", key);
  });
  if (!wrong.empty()) {
    return recipe::invalid(
        fmt::format("{}: keys have at most {} characters, and values are texts of at most {}",
                    wrong, kLongestKey, kLongestValue),
        wrong);
  }
  std::string out;
  recipe::append_json_compact(out, metadata, recipe::FloatStyle::kPython);
  return out;
}

std::string list_json(const std::vector<std::string>& entries, const std::vector<std::string>& ids,
                      bool has_more) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    out += entries[i];
  }
  out += R"(],"first_id":)";
  recipe::append_quoted_or_null(out, ids.empty() ? std::string_view() : ids.front());
  out += R"(,"last_id":)";
  recipe::append_quoted_or_null(out, ids.empty() ? std::string_view() : ids.back());
  out += has_more ? R"(,"has_more":true})" : R"(,"has_more":false})";
  return out;
}

}  // namespace hadal::serving
