#include "gateway/recipe/server_tools.h"

#include <algorithm>

#include <fmt/format.h>

namespace hadal::recipe {
namespace {

constexpr std::string_view kSearchParameters =
    R"({"type": "object", "properties": {"query": {"type": "string", "description": "What to search for."}}, "required": ["query"]})";
constexpr std::string_view kFetchParameters =
    R"({"type": "object", "properties": {"url": {"type": "string", "description": "The http or https address of the page."}}, "required": ["url"]})";
constexpr size_t kMaxDomains = 256;

core::Status read_domains(JsonValue list, const std::string& path, std::vector<std::string>& out) {
  if (list.absent_or_null()) return {};
  if (!list.is_array() || list.size() > kMaxDomains) {
    return invalid(fmt::format("must be a list of at most {} domains", kMaxDomains), path);
  }
  size_t i = 0;
  for (const JsonValue domain : list) {
    const std::string where = fmt::format("{}[{}]", path, i++);
    std::string name(domain.str());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (name.empty() || name.size() > 253 || name.find('/') != std::string::npos) {
      return invalid("must be a domain, without scheme and path", where);
    }
    out.push_back(std::move(name));
  }
  return {};
}

bool is_in_domain(std::string_view host, std::string_view domain) {
  if (!host.ends_with(domain)) return false;
  return host.size() == domain.size() || host[host.size() - domain.size() - 1] == '.';
}

}  // namespace

void make_server_tool(ToolKind kind, ToolInput& input) {
  const bool search = kind == ToolKind::kWebSearch;
  input.kind = kind;
  input.name = input.local_name = search ? kWebSearchName : kWebFetchName;
  input.description = search ? "Searches the web and returns pages with their text."
                             : "Reads one page of the web and returns its text.";
  input.has_description = true;
  input.parameters = {};
  input.parameters_text = search ? kSearchParameters : kFetchParameters;
  input.needs_parameters = false;
  input.strict.reset();
}

core::Status read_server_limits(JsonValue tool, const std::string& path, ServerTools& limits) {
  if (const JsonValue uses = tool["max_uses"]; !uses.absent_or_null()) {
    if (!uses.is(JsonType::kUnsigned) || uses.node()->u == 0) {
      return invalid("must be a whole number from 1", path + ".max_uses");
    }
    limits.max_uses = static_cast<uint32_t>(std::min<uint64_t>(uses.node()->u, limits.max_uses));
  }
  HADAL_TRY_VOID(
      read_domains(tool["allowed_domains"], path + ".allowed_domains", limits.allowed_domains));
  HADAL_TRY_VOID(read_domains(tool["filters"]["allowed_domains"], path + ".filters.allowed_domains",
                              limits.allowed_domains));
  HADAL_TRY_VOID(
      read_domains(tool["blocked_domains"], path + ".blocked_domains", limits.blocked_domains));
  if (!limits.allowed_domains.empty() && !limits.blocked_domains.empty()) {
    return invalid("give either allowed_domains or blocked_domains", path + ".blocked_domains");
  }
  return {};
}

bool is_allowed_host(std::string_view host, const ServerTools& limits) {
  const auto holds = [&](const std::string& domain) { return is_in_domain(host, domain); };
  if (!limits.allowed_domains.empty()) {
    return std::any_of(limits.allowed_domains.begin(), limits.allowed_domains.end(), holds);
  }
  return std::none_of(limits.blocked_domains.begin(), limits.blocked_domains.end(), holds);
}

std::string server_result_text(const ServerToolResult& result) {
  if (!result.error.empty()) return fmt::format("Error: {}", result.error_text);
  if (result.results.empty()) return "Nothing was found.";
  std::string out;
  for (const WebResult& page : result.results) {
    if (!out.empty()) out += "\n\n";
    out += fmt::format("[{}]({})\n", page.title, page.url);
    if (!page.age.empty()) out += fmt::format("Date: {}\n", page.age);
    out += page.text;
  }
  return out;
}

}  // namespace hadal::recipe
