#pragma once

#include <functional>
#include <string>

#include "base/core/result.h"
#include "base/types/engine_port.h"
#include "gateway/http/router.h"

namespace hadal::admin {

// What the admin paths need; references outlive the router.
struct AdminConfig {
  std::string version;
  std::string resolved_json;  // one JSON object
  std::string token;          // "": loopback only
  types::EngineControl* engine = nullptr;
  std::function<void()> begin_drain;  // as SIGTERM does
};

// /version, /admin/config, /admin/status, /admin/drain, /admin/abort, /admin/flush, and the web
// page.
void add_admin_routes(http::Router& router, const AdminConfig& config);
// May this request use /admin? With a token: it must carry it. Without: it must come from loopback,
// for a loopback name, not through a proxy that says so, and not from a web page of another origin.
bool admin_allowed(const http::Request& request, const std::string& token);
// The first line of a token file; an error names the file.
core::Result<std::string> read_token_file(const std::string& path);

}  // namespace hadal::admin
