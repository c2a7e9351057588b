#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gateway/fetch/web_provider.h"
#include "gateway/http/server.h"
#include "gateway/store/store.h"
#include "main/engine_stack.h"
#include "main/option_table.h"

namespace hadal::main {

// Everything that `hadal serve` can be told, with its defaults. Filled from a TOML file and then
// flags (OptionTable).
struct ServeConfig {
  EngineSettings engine;
  http::ServerConfig http;
  std::string config_file;
  std::string script_file;
  std::string api_keys;
  std::string admin_token_file;
  std::vector<std::string> served_names = {"DeepSeek-V4.1-Flash", "deepseek-flash",
                                           "deepseek-v4-flash"};
  bool any_model = false;
  bool insecure = false;
  bool strict_usage_chunk = false;
  bool require_reasoning = false;
  fetch::ProviderConfig web;
  std::string web_key_file;
  int64_t web_timeout_ms = 20'000;
  uint64_t web_max_page_bytes = 4u << 20;
  bool log_requests = true;
  std::string log_format = "text";
  std::string otlp_endpoint;  // "": no spans
  int64_t drain_grace_ms = 30'000;
  int64_t stall_warning_ms = 30'000;
  int64_t deadline_ms = 0;
  std::string reasoning_key_file;
  bool store_enabled = true;
  std::string store_path;
  uint32_t store_max_responses = 100'000;
  uint64_t store_max_bytes = 0, store_max_file_bytes = 0;  // 0: by whether it is in memory
  int64_t store_ttl_ms = int64_t{30} * 86'400'000;
  // In types that the table knows; copied into the structs above by finish().
  uint32_t block_tokens = 128, threads = 0, prefill_chunk = 0, http_threads = 1;
  uint64_t max_body_bytes = 64u << 20, max_pending_bytes = 64u << 10;
  int64_t header_timeout_ms = 10'000, body_timeout_ms = 30'000, idle_timeout_ms = 75'000,
          keep_alive_ms = 5'000;

  void bind(OptionTable& table);
  // Copies derived values and checks what spans several options.
  core::Status finish();
  store::StoreConfig store() const;
};

}  // namespace hadal::main
