#include "gateway/serving/batch_line.h"

#include <algorithm>

#include <fmt/format.h>

#include "gateway/recipe/json_value.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::serving {
namespace {

// A request line may hold a body of the largest kind, and levels around it.
constexpr int kLineDepth = 130;
constexpr size_t kLongestCustomId = 512;

std::string known_paths() {
  std::string out;
  for (const Dialect& dialect : dialects())
    out += fmt::format("{}{}", out.empty() ? "" : ", ", dialect.paths.front());
  return out;
}

}  // namespace

const Dialect* dialect_of_path(std::string_view path) {
  for (const Dialect& dialect : dialects()) {
    if (std::find(dialect.paths.begin(), dialect.paths.end(), path) != dialect.paths.end())
      return &dialect;
  }
  return nullptr;
}

std::string batch_line_id(uint64_t number) {
  return fmt::format("batch_req_{:08}", number);
}

core::Status read_batch_line(std::string_view line, BatchLine& out) {
  out = {};
  recipe::JsonDoc doc;
  if (const core::Status parsed = doc.parse(line, kLineDepth); !parsed)
    return recipe::invalid("it is no JSON object: " + parsed.error().message, "");
  const recipe::JsonValue root = doc.root();
  if (!root.is_object()) return recipe::invalid("it is no JSON object", "");
  const recipe::JsonValue custom = root["custom_id"];
  if (!custom.is_string()) return recipe::invalid("custom_id must be a string", "custom_id");
  if (custom.str().size() > kLongestCustomId) {
    return recipe::invalid(fmt::format("custom_id has more than {} bytes", kLongestCustomId),
                           "custom_id");
  }
  out.custom_id = custom.str();
  out.has_custom_id = true;
  if (root["method"].str() != "POST") return recipe::invalid("method must be \"POST\"", "method");
  out.dialect = dialect_of_path(root["url"].str());
  if (out.dialect == nullptr) return recipe::invalid("url must be one of " + known_paths(), "url");
  if (!root["body"].is_object()) return recipe::invalid("body must be an object", "body");
  out.body = doc.source(root["body"]);
  return {};
}

}  // namespace hadal::serving
