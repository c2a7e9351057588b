#include <algorithm>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/core/log.h"
#include "gateway/admin/admin_routes.h"
#include "gateway/admin/openapi.h"
#include "gateway/admin/span_exporter.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/sealed_text.h"
#include "gateway/serving/service.h"
#include "main/commands.h"
#include "main/encode_line.h"
#include "main/serve_config.h"
#include "main/stall_watch.h"

namespace hadal::main {
namespace {

constexpr std::string_view kVersion = "0.1.0";

// As many open files as the system allows: each stream is one.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

// Collects what an engine prints at its end: requests that were cut.
class WaitForEnd : public types::TokenSink {
 public:
  types::SinkAnswer on_tokens(std::span<const types::TokenEvent> events, size_t& n_taken) override {
    n_taken = events.size();
    return types::SinkAnswer::kContinue;
  }
  void on_done(const types::Completion& completion) override {
    {
      const std::lock_guard lock(mutex_);
      completion_ = completion;
      done_ = true;
    }
    changed_.notify_all();
  }
  types::Completion wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return completion_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  types::Completion completion_;
};

// One token through the whole engine, so that the first client does not pay for first touches, and
// a broken model is never ready.
core::Status warm_up(EngineStack& stack) {
  types::Request request;
  request.id = static_cast<types::RequestId>(~uint64_t{0});
  request.prompt.assign(8, stack.config().bos_token);
  request.max_tokens = 1;
  request.sampling.temperature = 0;
  request.use_prefix_cache = false;
  request.ignore_eos = true;
  if (stack.is_script()) request.script = types::ScriptPlay{.tokens = {0}};
  const auto sink = std::make_shared<WaitForEnd>();
  HADAL_TRY_VOID(stack.engine().submit(std::move(request), sink));
  const types::Completion completion = sink->wait();
  if (completion.reason == types::FinishReason::kError)
    return core::Error{core::Code::kInternal, "the warm-up step failed: " + completion.error};
  return {};
}

recipe::CodecOptions codec_options(const ServeConfig& config, const EngineStack& stack) {
  recipe::CodecOptions codec;
  if (!config.any_model) {
    codec.model_names = config.served_names;
    codec.messages_model_names = {"claude-*"};
  }
  codec.strict_usage_chunk = config.strict_usage_chunk;
  codec.reject_missing_reasoning = config.require_reasoning;
  codec.remote_pictures = false;
  codec.web_search = !config.web.search_url.empty();
  codec.web_fetch = config.web.fetch;
  if (!stack.is_script())
    codec.context_limit =
        static_cast<uint32_t>(std::min<int64_t>(stack.config().max_positions, codec.context_limit));
  return codec;
}

// What `hadal encode --stdin-jsonl` does with a line, for the body of a request.
void add_encode_route(http::Router& router, const tokenizer::Tokenizer& tokenizer,
                      const recipe::CodecOptions& options) {
  router.add("POST", "/v1/encode",
             [&tokenizer, options](const std::shared_ptr<http::Exchange>& exchange,
                                   const http::Request& request) {
               const auto out = encode_line(request.body, tokenizer, options);
               if (out) {
                 exchange->respond({200, "application/json", {}, *out});
                 return;
               }
               const core::Error error{core::Code::kInvalidRequest,
                                       "the body must be a JSON object with an id, as a line of "
                                       "hadal encode --stdin-jsonl",
                                       "id"};
               exchange->respond({recipe::http_status(error.code),
                                  "application/json",
                                  {},
                                  recipe::error_body(error, recipe::Api::kChat, options.compat)});
             });
}

// Describes what was added before it, and itself.
void add_openapi_route(http::Router& router, uint32_t n_vocabulary) {
  const auto document = std::make_shared<std::string>();
  router.add("GET", "/openapi.json",
             [document](const std::shared_ptr<http::Exchange>& exchange, const http::Request&) {
               exchange->respond({200, "application/json", {}, *document});
             });
  *document = admin::openapi_document(router, kVersion, n_vocabulary);
}

void reload(http::ApiKeys& keys) {
  const core::Status reloaded = keys.reload();
  if (reloaded) {
    HADAL_LOG(kInfo, "serve", "{} keys reloaded", keys.size());
  } else {
    HADAL_LOG(kError, "serve", "keys not reloaded, the old ones stay: {}",
              reloaded.error().message);
  }
}

// Until a signal ends the server; meanwhile looks whether the engine still steps. A script may be
// slow on purpose.
void wait_for_end(const sigset_t& signals, http::ApiKeys* keys, EngineStack& stack,
                  const ServeConfig& config, metrics::Registry& registry) {
  StallWatch watch(std::chrono::milliseconds(stack.is_script() ? 0 : config.stall_warning_ms));
  const metrics::Counter& steps = registry.counter("hadal_steps_total", "Steps run.");
  metrics::Gauge& stalled =
      registry.gauge("hadal_stalled_seconds", "Since the last step while there is work.");
  const timespec second{.tv_sec = 1, .tv_nsec = 0};
  while (true) {
    const int number = sigtimedwait(&signals, nullptr, &second);
    if (number == SIGHUP && keys != nullptr) reload(*keys);
    if (number > 0 && number != SIGHUP) return;
    const types::EngineStatus now = stack.engine().status();
    const std::string line =
        watch.look(std::chrono::steady_clock::now(), {.n_steps = steps.value(),
                                                      .n_running = now.n_running,
                                                      .n_paused = now.n_paused,
                                                      .n_waiting = now.n_waiting});
    stalled.set(std::chrono::duration<double>(watch.idle()).count());
    if (!line.empty()) HADAL_LOG(kWarning, "engine", "{}", line);
  }
}

core::Status serve(ServeConfig& config, const OptionTable& table) {
  metrics::Registry registry;
  // All signals are taken by one thread, below; the others inherit this mask.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  raise_file_limit();
  if (config.engine.model.threads == 0)
    config.engine.model.threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);

  std::unique_ptr<http::ApiKeys> keys;
  if (!config.api_keys.empty()) {
    HADAL_TRY(keys, http::ApiKeys::load(config.api_keys));
  }
  std::string admin_token;
  if (!config.admin_token_file.empty()) {
    HADAL_TRY(admin_token, admin::read_token_file(config.admin_token_file));
  }
  std::unique_ptr<serving::ScriptFile> script;
  if (!config.script_file.empty()) {
    HADAL_TRY(script, serving::ScriptFile::load(config.script_file));
  }
  std::unique_ptr<admin::SpanExporter> spans;
  if (!config.otlp_endpoint.empty()) {
    HADAL_TRY(const auto endpoint, admin::parse_otlp_endpoint(config.otlp_endpoint));
    spans = std::make_unique<admin::SpanExporter>(
        admin::SpanExporterConfig{.endpoint = endpoint, .version = std::string(kVersion)},
        registry);
  }
  std::unique_ptr<fetch::WebProvider> web;
  if (!config.web.search_url.empty() || config.web.fetch) {
    if (!config.web_key_file.empty()) {
      std::ifstream file(config.web_key_file);
      if (!std::getline(file, config.web.key) || config.web.key.empty()) {
        return core::Error{core::Code::kInvalidRequest,
                           config.web_key_file + ": must hold the provider's key in its first line",
                           "web.key-file"};
      }
    }
    HADAL_TRY(web, fetch::WebProvider::make(config.web));
  }
  std::string reasoning_key;
  if (!config.reasoning_key_file.empty()) {
    HADAL_TRY(reasoning_key, recipe::read_sealing_key(config.reasoning_key_file));
  }
  std::unique_ptr<store::Store> store;
  if (config.store_enabled) {
    HADAL_TRY(store, store::Store::open(config.store()));
  }
  config.engine.model.log_loading = true;
  HADAL_TRY(const auto stack, EngineStack::make(config.engine, registry));
  recipe::CodecOptions codec = codec_options(config, *stack);
  codec.reasoning_key = reasoning_key;
  serving::Service service({.codec = codec,
                            .served_names = config.served_names,
                            .end_token = stack->config().eos_token,
                            .script = stack->is_script(),
                            .n_workers = 1,
                            .log_requests = config.log_requests,
                            .spans = spans.get(),
                            .web = web.get(),
                            .store = store.get(),
                            .deadline = std::chrono::milliseconds(config.deadline_ms)},
                           stack->tokenizer(), stack->engine(), registry, keys.get(), script.get());
  const std::string resolved =
      fmt::format(R"({{"asked":{},"resolved":{}}})", table.to_json(), stack->resolved_json());
  service.set_admin_guard([&admin_token](const http::Request& request) {
    return admin::admin_allowed(request, admin_token);
  });
  admin::add_admin_routes(service.router(), {.version = std::string(kVersion),
                                             .resolved_json = resolved,
                                             .token = admin_token,
                                             .engine = &stack->engine(),
                                             .begin_drain = [] { kill(getpid(), SIGTERM); }});
  add_encode_route(service.router(), stack->tokenizer(), codec_options(config, *stack));
  add_openapi_route(service.router(), static_cast<uint32_t>(stack->tokenizer().size()));
  HADAL_TRY(const auto server, http::Server::listen(config.http, service));
  server->start();
  HADAL_LOG(kInfo, "serve", "config {}", resolved);
  HADAL_TRY_VOID(warm_up(*stack));
  service.set_ready(true);
  HADAL_LOG(kInfo, "serve", "ready on {}://{}:{}",
            config.http.tls_key_file.empty() ? "http" : "https", config.http.host, server->port());
  wait_for_end(signals, keys.get(), *stack, config, registry);
  HADAL_LOG(kInfo, "serve", "draining: {} requests run, at most {} ms", server->n_active(),
            config.drain_grace_ms);
  service.set_ready(false);
  server->drain();
  const std::jthread impatience([&](const std::stop_token& stop) {
    const timespec moment{.tv_sec = 0, .tv_nsec = 20'000'000};
    while (!stop.stop_requested()) {
      if (sigtimedwait(&signals, nullptr, &moment) != SIGINT) continue;
      HADAL_LOG(kWarning, "serve", "interrupted again: what runs is cut now");
      return stack->engine().end_drain();
    }
  });
  const uint32_t n_cut = stack->engine().drain(std::chrono::milliseconds(config.drain_grace_ms));
  for (int i = 0; i < 200 && server->n_active() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server->stop();
  if (store != nullptr) store->close();
  HADAL_LOG(kInfo, "serve", "stopped; {} requests were cut", n_cut);
  return {};
}

}  // namespace

int cmd_serve(const std::vector<std::string>& args) {
  ServeConfig config;
  OptionTable table;
  config.bind(table);
  if (std::find(args.begin(), args.end(), "--help") != args.end() ||
      std::find(args.begin(), args.end(), "-h") != args.end()) {
    fmt::print(
        "hadal serve: the HTTP server\n\n  hadal serve --model DIR --port 8000\n  hadal serve "
        "--config hadal.toml\n\n{}",
        table.help());
    return 0;
  }
  // Flags twice: once to find the file, once more to win over it. Mistakes of both are told.
  core::Status status = table.apply_flags(args);
  if (!config.config_file.empty()) {
    const core::Status file = table.apply_file(std::string(config.config_file));
    if (status && file) {
      OptionTable flags;
      config.bind(flags);
      status = flags.apply_flags(args);
    } else if (status) {
      status = file;
    } else if (!file) {
      core::Error both = status.error();
      both.message += "\n" + file.error().message;
      status = std::move(both);
    }
  }
  if (status) status = config.finish();
  if (!status) {
    fmt::print(stderr, "hadal serve: {}\nsee: hadal serve --help\n", status.error().message);
    return 2;
  }
  core::set_log(core::LogLevel::kInfo,
                config.log_format == "json" ? core::LogFormat::kJson : core::LogFormat::kText);
  const core::Status served = serve(config, table);
  if (served) return 0;
  fmt::print(stderr, "hadal serve: {}\n", served.error().message);
  return 1;
}

}  // namespace hadal::main
