#include "gateway/admin/admin_routes.h"

#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "gateway/admin/assets.h"
#include "gateway/http/api_keys.h"

namespace hadal::admin {

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
  if (token.empty()) return request.peer_is_loopback;
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
