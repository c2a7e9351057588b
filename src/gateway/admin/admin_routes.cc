#include "gateway/admin/admin_routes.h"

#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "gateway/admin/assets.h"
#include "gateway/http/api_keys.h"

namespace hadal::admin {
namespace {

// "127.0.0.1:8000" -> "127.0.0.1", "[::1]:8000" -> "[::1]".
std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

bool is_this_machine(std::string_view name) {
  return name == "localhost" || name == "[::1]" ||
         (name.starts_with("127.") &&
          name.find_first_not_of("0123456789.") == std::string_view::npos);
}

// Sent by a program on this machine for itself, as far as can be told: not for somebody whom a
// proxy here serves, and not by a web page of another origin, nor one whose name was made to point
// here, that a browser on this machine shows.
bool comes_from_this_machine(const http::Request& request) {
  if (!request.peer_is_loopback) return false;
  for (const char* proxied : {"forwarded", "x-forwarded-for", "x-real-ip", "via"}) {
    if (!request.header(proxied).empty()) return false;
  }
  const std::string_view host = request.header("host");
  if (!host.empty() && !is_this_machine(without_port(host))) return false;
  const std::string_view origin = request.header("origin");
  return origin.empty() || origin == fmt::format("http://{}", host) ||
         origin == fmt::format("https://{}", host);
}

}  // namespace

using Exchange = std::shared_ptr<http::Exchange>;

void add_admin_routes(http::Router& router, const AdminConfig& config) {
  const auto done = [](const Exchange& exchange) {
    exchange->respond({200, "application/json", {}, R"({"status":"done"})"});
  };
  router.add("GET", "/version",
             [version = config.version](const Exchange& exchange, const http::Request&) {
               exchange->respond(
                   {200, "application/json", {}, fmt::format(R"({{"version":"{}"}})", version)});
             });
  router.add("GET", "/admin/config",
             [json = config.resolved_json](const Exchange& exchange, const http::Request&) {
               exchange->respond({200, "application/json", {}, json});
             });
  router.add(
      "GET", "/admin/status",
      [engine = config.engine](const Exchange& exchange, const http::Request&) {
        const types::EngineStatus s = engine->status();
        exchange->respond(
            {200,
             "application/json",
             {},
             fmt::format(
                 R"({{"running":{},"waiting":{},"paused":{},"blocks":{},"free_blocks":{},"cached_blocks":{},"foreign_prefixes":{},"draining":{}}})",
                 s.n_running, s.n_waiting, s.n_paused, s.n_blocks, s.n_free_blocks,
                 s.n_cached_blocks, s.n_foreign_prefixes, s.draining)});
      });
  router.add("POST", "/admin/drain",
             [begin = config.begin_drain, done](const Exchange& exchange, const http::Request&) {
               done(exchange);
               begin();
             });
  router.add("POST", "/admin/abort",
             [engine = config.engine, done](const Exchange& exchange, const http::Request&) {
               engine->cancel_all();
               done(exchange);
             });
  router.add("POST", "/admin/flush",
             [engine = config.engine, done](const Exchange& exchange, const http::Request&) {
               engine->flush_prefix_cache();
               done(exchange);
             });
  for (const Asset& asset : web_assets()) {
    router.add("GET", asset.path, [&asset](const Exchange& exchange, const http::Request&) {
      exchange->respond({200,
                         std::string(asset.content_type),
                         {{"Cache-Control", "no-cache"}, {"X-Content-Type-Options", "nosniff"}},
                         std::string(asset.bytes)});
    });
  }
}

bool admin_allowed(const http::Request& request, const std::string& token) {
  if (token.empty()) return comes_from_this_machine(request);
  const std::string password = http::basic_password(request);
  return http::equal_in_constant_time(
      password.empty() ? http::presented_key(request) : std::string_view(password), token);
}

core::Result<std::string> read_token_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.size() < 16) {
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("{}: must hold the admin token in its first line, at least 16 characters",
                    path),
        "admin_token_file"};
  }
  return line;
}

}  // namespace hadal::admin
