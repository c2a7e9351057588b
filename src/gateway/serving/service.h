#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/metrics/metrics.h"
#include "base/metrics/trace.h"
#include "base/tokenizer/tokenizer.h"
#include "base/types/engine_port.h"
#include "gateway/fetch/web_provider.h"
#include "gateway/http/api_keys.h"
#include "gateway/http/router.h"
#include "gateway/http/server.h"
#include "gateway/recipe/options.h"
#include "gateway/serving/batch_runner.h"
#include "gateway/serving/dialects.h"
#include "gateway/serving/file_sender.h"
#include "gateway/serving/request_maker.h"
#include "gateway/serving/script_file.h"
#include "gateway/serving/stored_responses.h"
#include "gateway/serving/workers.h"
#include "gateway/store/store.h"

namespace hadal::serving {

struct ServiceConfig {
  recipe::CodecOptions codec;
  std::vector<std::string> served_names;  // for /v1/models; codec.model_names decides what is taken
  types::TokenId end_token = -1;
  bool script = false;
  uint32_t n_workers = 1;  // threads that read large bodies
  bool log_requests = true;
  metrics::SpanSink* spans = nullptr;  // null: no traces are kept; else it outlives the service
  const fetch::WebProvider* web = nullptr;  // null: no web tools; else it outlives the service
  store::Store* store = nullptr;  // null: nothing is kept; else closed before the service ends
  std::chrono::milliseconds deadline{0};  // how long a request may take; 0: as long as it needs
};

// The server's HTTP side: routes, keys, the three dialects, tokenising, health and metrics. admin/
// adds its routes to router(). All references outlive it. Thread-safe.
class Service : public http::Handler {
 public:
  Service(const ServiceConfig& config, const tokenizer::Tokenizer& tokenizer,
          types::EnginePort& engine, metrics::Registry& registry, const http::ApiKeys* keys,
          ScriptFile* script_file);
  ~Service() override;

  http::Router& router() { return router_; }  // before the server starts
  // True, once: goes on with what the store holds unfinished. False: leaves that to the next
  // server.
  void set_ready(bool ready);
  // Paths that need no key: alive and ready. Paths under /admin are checked by `admin_guard`.
  void set_admin_guard(std::function<bool(const http::Request&)> guard) {
    admin_guard_ = std::move(guard);
  }

  void handle(std::shared_ptr<http::Exchange> exchange) override;
  http::Response error_response(int status, std::string_view path,
                                std::string_view message) override;
  void on_done(const http::Exchange& exchange, std::chrono::microseconds took) override;

 private:
  void add_routes();
  void generate(const Dialect& dialect, std::shared_ptr<http::Exchange> exchange,
                const http::Request& request);
  void count_tokens(const std::shared_ptr<http::Exchange>& exchange, const http::Request& request);
  void tokenize(const std::shared_ptr<http::Exchange>& exchange, const http::Request& request);
  void detokenize(const std::shared_ptr<http::Exchange>& exchange, const http::Request& request);
  void list_models(const std::shared_ptr<http::Exchange>& exchange, std::string_view id);
  void refuse(const std::shared_ptr<http::Exchange>& exchange, const core::Error& error,
              recipe::Api api) const;
  // The counter of answers of this route (a pattern of the router, or a constant) and status.
  metrics::Counter& answered(std::string_view route, int status);
  std::string tenant_of(const http::Request& request) const;

  const ServiceConfig config_;
  const tokenizer::Tokenizer& tokenizer_;
  types::EnginePort& engine_;
  metrics::Registry& registry_;
  const http::ApiKeys* keys_;
  ScriptFile* script_file_;
  std::function<bool(const http::Request&)> admin_guard_;
  http::Router router_;
  std::atomic<bool> ready_{false};
  std::mutex answered_mutex_;  // guards answered_
  std::map<std::pair<const char*, int>, metrics::Counter*> answered_;
  RequestMaker maker_;
  Workers workers_;
  Workers huge_bodies_{1};
  std::unique_ptr<Workers> tool_workers_;  // they wait for other servers; null without web tools
  // Null without a store.
  std::unique_ptr<StoredResponses> responses_;
  std::unique_ptr<FileSender> sender_;
  std::unique_ptr<BatchRunner> batches_;
};

}  // namespace hadal::serving
