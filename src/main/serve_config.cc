#include "main/serve_config.h"

#include <algorithm>

namespace hadal::main {

void ServeConfig::bind(OptionTable& t) {
  t.text("config", config_file, "TOML file with the same names; flags win over it");
  t.text("model", engine.model.model_dir, "model folder; empty: the bundled demo model");
  t.choice("backend", engine.model.backend,
           {"", "auto", "cpu", "cuda", "cuda:fp8", "cuda:serial", "script"},
           "auto, cpu, cuda or script; empty: auto, the GPU if there is one");
  t.text("script", script_file,
         "with --backend script: a file of scripted answers, one JSON object a line");
  t.text("host", http.host, "address to bind");
  t.integer("port", http.port, 0, 65535, "port; 0: any free one");
  t.text_list("served-name", served_names, "model name that requests may use; repeat for more");
  t.flag("any-model", any_model, "take every model name");
  t.text("api-keys", api_keys, "file of keys, one a line: KEY [TENANT]");
  t.flag("insecure", insecure, "allow a non-loopback address without keys");
  t.text("admin-token-file", admin_token_file,
         "token of /admin; without it /admin answers on loopback only");
  t.integer("max-context", engine.max_context, 0, 1u << 30,
            "tokens of prompt and answer together; 0: the model's, at most 32768");
  t.millis("drain-grace", drain_grace_ms, "how long running answers may take after SIGTERM");
  t.millis("stall-warning", stall_warning_ms,
           "without a step while there is work, then a warning; 0: never");
  t.integer("threads", threads, 0, 4096, "threads of the model; 0: all cores but one");
  t.choice("cpu-level", engine.model.cpu_level, {"", "base", "avx2", "avx512", "avx512bf16"},
           "instruction set; empty: the best");
  t.choice("replay", engine.model.replay, {"exact", "bounded"},
           "how windows come back after a prefix hit");
  t.integer("prefill-chunk", prefill_chunk, 0, 1u << 20,
            "rows of one prompt in a step; 0: sched.step-tokens");
  t.flag("strict-usage-chunk", strict_usage_chunk, "usage in streams exactly as OpenAI sends it");
  t.flag("require-reasoning", require_reasoning,
         "refuse a history whose turns with calls come without their reasoning");
  t.choice("log-format", log_format, {"text", "json"}, "log lines");
  t.flag("log-requests", log_requests, "one log line a request, never with its text");
  t.integer("kv.block-tokens", block_tokens, 2, 65536, "tokens of a cache block");
  t.integer("kv.device-blocks", engine.device_blocks, 0, 1u << 26,
            "blocks of the pool; 0: by kv.device-bytes");
  t.bytes("kv.device-bytes", engine.device_bytes,
          "bytes of the pool; 0: a tenth of free memory at most");
  t.bytes("kv.snapshot-bytes", engine.snapshot_bytes,
          "window states kept for exact prefix hits; 0: 256MiB");
  t.flag("kv.prefix-cache", engine.prefix_cache, "reuse cached prefixes");
  t.integer("sched.step-tokens", engine.step_tokens, 0, 1u << 20,
            "rows of a step; 0: 512 on a CPU");
  t.integer("sched.max-running", engine.max_running, 0, 65536,
            "sequences that run at a time; 0: 16 on a CPU");
  t.integer("sched.max-waiting", engine.max_waiting, 0, 1u << 20,
            "requests that may wait; beyond it 429");
  t.millis("sched.deadline", deadline_ms,
           "how long a request may take, waiting included, before it ends with 504; 0: no limit");
  t.integer("http.threads", http_threads, 1, 256, "threads of the network");
  t.integer("http.max-connections", http.max_connections, 1, 1u << 20, "beyond: 503");
  t.bytes("http.max-body-bytes", max_body_bytes, "largest request body; beyond: 413", 1);
  t.bytes("http.max-pending-bytes", max_pending_bytes,
          "bytes of a stream that its client does not read before its row pauses", 1024);
  t.millis("http.header-timeout", header_timeout_ms,
           "from the first byte of a request to the end of its head", 1);
  t.millis("http.body-timeout", body_timeout_ms, "without a byte of the body", 1);
  t.millis("http.idle-timeout", idle_timeout_ms, "of a connection between requests", 1);
  t.millis("http.keep-alive-comment", keep_alive_ms, "SSE comment in a silent stream", 1);
  t.text("reasoning-key-file", reasoning_key_file,
         "key that seals reasoning for clients: 32 bytes or 64 hex digits; empty: not sealed");
  t.flag("store.enabled", store_enabled,
         "keep responses, conversations, files and batches for later requests");
  t.text("store.path", store_path, "SQLite file that keeps them; empty: in memory");
  t.integer("store.max-responses", store_max_responses, 1, 1u << 30,
            "responses kept; the oldest make room");
  t.bytes("store.max-bytes", store_max_bytes,
          "bytes of responses, and of conversations; 0: 256MiB in memory, 4GiB in a file");
  t.bytes("store.max-file-bytes", store_max_file_bytes,
          "bytes of files and batch results; 0: 256MiB in memory, 8GiB in a file");
  t.millis("store.ttl", store_ttl_ms, "age at which responses and unused conversations end", 1000);
  t.text_list("http.cors-origin", http.cors_origins,
              "origin that browsers may call from; * for all");
  t.text("otlp.endpoint", otlp_endpoint,
         "collector that gets spans as OTLP/HTTP JSON, http://HOST[:4318][/v1/traces]");
  t.integer("otlp.sample-percent", http.trace_percent, 0, 100,
            "of the requests that bring no traceparent header");
  t.text("web.search-url", web.search_url,
         "provider of web search: POST {query, count}; empty: no search");
  t.text("web.key-file", web_key_file, "file with the provider's key, sent as Bearer");
  t.flag("web.fetch", web.fetch, "the model may read public web pages (Messages: web_fetch)");
  t.text_list("web.private-host", web.client.private_hosts,
              "HOST:PORT that may be at a private address, such as a provider of your own");
  t.integer("web.results", web.n_results, 1, 50, "found pages that the model gets");
  t.millis("web.timeout", web_timeout_ms, "of one search or page", 1);
  t.bytes("web.max-page-bytes", web_max_page_bytes, "of one answer; the rest is cut off", 1);
  t.text("web.ca-file", web.client.ca_file, "PEM of trusted authorities; empty: the system's");
  t.text("tls.certificate", http.tls_certificate_file, "PEM chain; with tls.key: TLS");
  t.text("tls.key", http.tls_key_file, "PEM key");
}

core::Status ServeConfig::finish() {
  engine.model.block_tokens = static_cast<int32_t>(block_tokens);
  engine.model.threads = static_cast<int>(threads);
  engine.model.prefill_chunk = static_cast<int32_t>(prefill_chunk);
  engine.prefill_chunk = prefill_chunk;
  http.n_threads = http_threads;
  http.max_body_bytes = max_body_bytes;
  http.max_pending_bytes = max_pending_bytes;
  http.header_timeout = std::chrono::milliseconds(header_timeout_ms);
  http.body_timeout = std::chrono::milliseconds(body_timeout_ms);
  http.idle_timeout = std::chrono::milliseconds(idle_timeout_ms);
  http.keep_alive_comment = std::chrono::milliseconds(keep_alive_ms);
  http.new_traces = !otlp_endpoint.empty();
  web.client.timeout = std::chrono::milliseconds(web_timeout_ms);
  web.client.max_bytes = web_max_page_bytes;
  const bool loopback =
      http.host == "localhost" || http.host == "::1" || http.host.starts_with("127.");
  if (!loopback && api_keys.empty() && !insecure) {
    return core::Error{core::Code::kInvalidRequest,
                       "--host " + http.host +
                           " is reachable from outside and there are no keys: give --api-keys "
                           "FILE, or --insecure if that is meant",
                       "host"};
  }
  if (!script_file.empty() && engine.model.backend != "script") {
    return core::Error{core::Code::kInvalidRequest, "--script needs --backend script", "script"};
  }
  return {};
}

store::StoreConfig ServeConfig::store() const {
  const auto chosen = [&](uint64_t asked, uint64_t in_file) {
    if (asked != 0) return asked;
    return store_path.empty() ? uint64_t{256} << 20 : in_file;
  };
  store::StoreConfig out;
  out.path = store_path;
  out.limits.max_responses = store_max_responses;
  out.limits.max_response_bytes = chosen(store_max_bytes, uint64_t{4} << 30);
  out.limits.max_conversation_bytes = out.limits.max_response_bytes;
  out.limits.max_file_bytes = chosen(store_max_file_bytes, uint64_t{8} << 30);
  out.limits.ttl_s = std::max<int64_t>(1, store_ttl_ms / 1000);
  return out;
}

}  // namespace hadal::main
