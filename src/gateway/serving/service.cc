#include "gateway/serving/service.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/log.h"
#include "base/tokenizer/utf8.h"
#include "gateway/anthropic/messages_request.h"
#include "gateway/recipe/encode.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_value.h"
#include "gateway/serving/answer.h"
#include "gateway/serving/batch_routes.h"
#include "gateway/serving/conversation_routes.h"
#include "gateway/serving/file_routes.h"
#include "gateway/serving/generation_trace.h"
#include "gateway/serving/tool_runner.h"

namespace hadal::serving {
namespace {

// Bodies up to here are read on the connection's thread: a fraction of a millisecond.
constexpr size_t kInlineBody = 16 << 10;
// Larger ones have a thread of their own: to tokenize 60 MB takes seconds, for which an agent's
// conversation of some hundred kB must not wait.
constexpr size_t kUsualBody = 1 << 20;
// Searches and page reads at a time; the rest waits.
constexpr uint32_t kToolThreads = 4;

recipe::Api api_of_path(std::string_view path) {
  if (path.starts_with("/anthropic/") || path.starts_with("/v1/messages") || path == "/messages")
    return recipe::Api::kMessages;
  return path.ends_with("/responses") || path.starts_with("/v1/responses") ? recipe::Api::kResponses
                                                                           : recipe::Api::kChat;
}

core::Code code_of_status(int status) {
  switch (status) {
    case 401:
      return core::Code::kUnauthorized;
    case 404:
    case 405:
      return core::Code::kNotFound;
    case 413:
      return core::Code::kTooLarge;
    case 503:
      return core::Code::kUnavailable;
    default:
      return core::Code::kInvalidRequest;
  }
}

void append_ids(std::string& out, const std::vector<types::TokenId>& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", ids[i]);
  out += ']';
}

}  // namespace

Service::Service(const ServiceConfig& config, const tokenizer::Tokenizer& tokenizer,
                 types::EnginePort& engine, metrics::Registry& registry, const http::ApiKeys* keys,
                 ScriptFile* script_file)
    : config_(config),
      tokenizer_(tokenizer),
      engine_(engine),
      registry_(registry),
      keys_(keys),
      script_file_(script_file),
      maker_({.codec = config.codec,
              .end_token = config.end_token,
              .script = config.script,
              .has_store = config.store != nullptr,
              .web = config.web,
              .deadline = config.deadline},
             tokenizer, engine, script_file),
      workers_(std::max(1u, config.n_workers)) {
  if (config.web != nullptr) tool_workers_ = std::make_unique<Workers>(kToolThreads);
  if (config.store != nullptr) {
    responses_ = std::make_unique<StoredResponses>(*config.store, maker_, engine, workers_,
                                                   tool_workers_.get(), config.spans);
    sender_ = std::make_unique<FileSender>(*config.store);
    batches_ = std::make_unique<BatchRunner>(BatchRunner::Config{}, *config.store, maker_, engine);
  }
  add_routes();
}

Service::~Service() = default;

void Service::set_ready(bool ready) {
  if (responses_ != nullptr) {
    if (ready) {
      responses_->resume();
      batches_->start();
    } else {
      responses_->stopping();
      batches_->stop();
    }
  }
  ready_ = ready;
}

void Service::add_routes() {
  for (const Dialect& dialect : dialects()) {
    for (const std::string_view path : dialect.paths) {
      router_.add(
          "POST", path,
          [this, &dialect](std::shared_ptr<http::Exchange> exchange, const http::Request& request) {
            generate(dialect, std::move(exchange), request);
          });
    }
  }
  if (responses_ != nullptr) {
    const TenantOf tenant = [this](const http::Request& request) { return tenant_of(request); };
    responses_->add_routes(router_, tenant);
    add_conversation_routes(router_, tenant, *config_.store, maker_);
    add_file_routes(router_, tenant, *config_.store, maker_, *sender_);
    add_batch_routes(router_, tenant, *config_.store, maker_, *batches_);
  }
  using Exchange = std::shared_ptr<http::Exchange>;
  router_.add("GET", "/health", [](const Exchange& exchange, const http::Request&) {
    exchange->respond({200, "application/json", {}, R"({"status":"alive"})"});
  });
  router_.add("GET", "/ready", [this](const Exchange& exchange, const http::Request&) {
    const bool ready = ready_;
    exchange->respond({ready ? 200 : 503,
                       "application/json",
                       {},
                       ready ? R"({"status":"ready"})" : R"({"status":"not ready"})"});
  });
  router_.add("GET", "/metrics", [this](const Exchange& exchange, const http::Request&) {
    const std::string model = config_.served_names.empty() ? "hadal" : config_.served_names.front();
    exchange->respond({200,
                       "text/plain; version=0.0.4; charset=utf-8",
                       {},
                       registry_.prometheus({{"model_name", model}, {"engine", "0"}})});
  });
  router_.add("GET", "/v1/models", [this](const Exchange& exchange, const http::Request&) {
    list_models(exchange, {});
  });
  router_.add("GET", "/v1/models/{id}",
              [this](const Exchange& exchange, const http::Request& request) {
                list_models(exchange, request.path_param("id"));
              });
  for (const char* path : {"/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens"}) {
    router_.add("POST", path, [this](const Exchange& exchange, const http::Request& request) {
      count_tokens(exchange, request);
    });
  }
  router_.add("POST", "/tokenize", [this](const Exchange& exchange, const http::Request& request) {
    tokenize(exchange, request);
  });
  router_.add("POST", "/detokenize",
              [this](const Exchange& exchange, const http::Request& request) {
                detokenize(exchange, request);
              });
}

void Service::handle(std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  if (request.method == "OPTIONS" && !request.header("access-control-request-method").empty()) {
    exchange->respond({204, "", {}, ""});  // the server adds the CORS headers
    return;
  }
  http::Router::Match match = router_.match(request.method, request.path);
  exchange->set_route(match.pattern);
  const bool open = match.pattern == "/health" || match.pattern == "/ready";
  const bool admin = request.path.starts_with("/admin");
  if (admin ? !(admin_guard_ && admin_guard_(request))
            : (!open && keys_ != nullptr && !keys_->tenant_of(request))) {
    http::Response response = error_response(
        401, request.path,
        admin ? "the admin paths answer with the admin token (--admin-token-file); without one to "
                "programs of this machine only, which ask by a loopback name and through no proxy"
              : "an API key is needed: send Authorization: Bearer KEY or x-api-key: KEY");
    response.headers.push_back({"WWW-Authenticate", "Bearer, Basic realm=\"hadal\""});
    exchange->respond(std::move(response));
    return;
  }
  if (match.endpoint == nullptr) {
    const bool known = !match.pattern.empty();
    http::Response response = error_response(
        known ? 405 : 404, request.path,
        known ? fmt::format("{} does not take {}; it takes {}", request.path, request.method,
                            match.allow)
              : fmt::format("there is no {} here; the paths are listed in the documentation",
                            request.path));
    if (known) response.headers.push_back({"Allow", match.allow});
    exchange->respond(std::move(response));
    return;
  }
  if (!match.params.empty()) exchange->set_path_params(std::move(match.params));
  auto work = [exchange, endpoint = match.endpoint] { (*endpoint)(exchange, exchange->request()); };
  if (request.body.size() <= kInlineBody) {
    work();
  } else if (request.body.size() <= kUsualBody) {
    workers_.run(std::move(work));
  } else {
    huge_bodies_.run(std::move(work));
  }
}

std::string Service::tenant_of(const http::Request& request) const {
  return keys_ == nullptr ? std::string() : keys_->tenant_of(request).value_or("");
}

void Service::refuse(const std::shared_ptr<http::Exchange>& exchange, const core::Error& error,
                     recipe::Api api) const {
  http::Response response{recipe::http_status(error.code),
                          "application/json",
                          {},
                          recipe::error_body(error, api, config_.codec.compat)};
  if (response.status == 429 || response.status == 503)
    response.headers.push_back({"Retry-After", "1"});
  exchange->respond(std::move(response));
}

void Service::generate(const Dialect& dialect, std::shared_ptr<http::Exchange> exchange,
                       const http::Request& request) {
  if (!ready_) {
    refuse(exchange,
           {core::Code::kUnavailable,
            "the model is loading or the server is shutting down; try again later"},
           dialect.api);
    return;
  }
  std::string body = exchange->take_body();
  if (dialect.api == recipe::Api::kResponses && responses_ != nullptr) {
    responses_->create(std::move(exchange), tenant_of(request), std::move(body));
    return;
  }
  auto made = maker_.make(dialect, std::move(body), {.tenant = tenant_of(request), .history = {}});
  if (!made) {
    refuse(exchange, made.error(), dialect.api);
    return;
  }
  auto run_tools = make_tool_runner(*made, maker_, tool_workers_.get());
  auto answer = std::make_shared<Answer>(Answer::Parts{.exchange = std::move(exchange),
                                                       .text = std::move(made->text),
                                                       .stream = std::move(made->stream),
                                                       .api = dialect.api,
                                                       .model = std::move(made->model),
                                                       .compat = config_.codec.compat,
                                                       .event_times = made->event_times,
                                                       .engine = &engine_,
                                                       .spans = config_.spans,
                                                       .run_tools = std::move(run_tools),
                                                       .on_events = {},
                                                       .goes_on_elsewhere = {},
                                                       .keep = {},
                                                       .on_finished = {}});
  answer->start(std::move(made->requests), made->prompt);
}

void Service::count_tokens(const std::shared_ptr<http::Exchange>& exchange,
                           const http::Request& request) {
  // max_tokens is not needed to count; the parser asks for what the dialect's own endpoint asks
  // for.
  const recipe::CodecOptions codec = maker_.codec_for(tenant_of(request));
  auto parsed = anthropic::parse_messages_request(request.body, codec);
  if (!parsed) {
    refuse(exchange, parsed.error(), recipe::Api::kMessages);
    return;
  }
  const auto ids = recipe::tokenize(recipe::render_request(*parsed, codec), tokenizer_);
  if (!ids) {
    refuse(exchange, ids.error(), recipe::Api::kMessages);
    return;
  }
  exchange->respond(
      {200, "application/json", {}, fmt::format(R"({{"input_tokens":{}}})", ids->size())});
}

void Service::list_models(const std::shared_ptr<http::Exchange>& exchange, std::string_view id) {
  std::string list;
  const uint32_t context =
      std::min(engine_.limits().max_context, engine_.limits().max_request_tokens);
  for (const std::string& name : config_.served_names) {
    if (!id.empty() && name != id) continue;
    if (!list.empty()) list += ',';
    list += R"({"id":)";
    recipe::append_json_string(list, name);
    fmt::format_to(std::back_inserter(list),
                   R"(,"object":"model","created":0,"owned_by":"hadal","max_model_len":{}}})",
                   context);
  }
  if (id.empty()) {
    exchange->respond({200, "application/json", {}, R"({"object":"list","data":[)" + list + "]}"});
  } else if (list.empty()) {
    refuse(exchange,
           {core::Code::kNotFound,
            fmt::format("there is no model {}; GET /v1/models lists those that are served", id),
            "model"},
           recipe::Api::kChat);
  } else {
    exchange->respond({200, "application/json", {}, list});
  }
}

void Service::tokenize(const std::shared_ptr<http::Exchange>& exchange,
                       const http::Request& request) {
  recipe::JsonDoc doc;
  if (const auto parsed = doc.parse(request.body); !parsed) {
    refuse(exchange, parsed.error(), recipe::Api::kChat);
    return;
  }
  const recipe::JsonValue text = doc.root()["prompt"] ? doc.root()["prompt"] : doc.root()["text"];
  if (!text.is_string()) {
    refuse(exchange, {core::Code::kInvalidRequest, "prompt: must be a text", "prompt"},
           recipe::Api::kChat);
    return;
  }
  const recipe::JsonValue special = doc.root()["add_special_tokens"];
  if (!special.absent_or_null() && !special.is_bool()) {
    refuse(exchange,
           {core::Code::kInvalidRequest, "add_special_tokens: must be true or false",
            "add_special_tokens"},
           recipe::Api::kChat);
    return;
  }
  std::vector<types::TokenId> ids;
  tokenizer_.encode(text.str(),
                    special.is_true() ? tokenizer::Added::kMatch : tokenizer::Added::kIgnore, ids);
  std::string out = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", ids.size(),
                                engine_.limits().max_context);
  append_ids(out, ids);
  exchange->respond({200, "application/json", {}, out + "}"});
}

void Service::detokenize(const std::shared_ptr<http::Exchange>& exchange,
                         const http::Request& request) {
  recipe::JsonDoc doc;
  if (const auto parsed = doc.parse(request.body); !parsed) {
    refuse(exchange, parsed.error(), recipe::Api::kChat);
    return;
  }
  const recipe::JsonValue tokens = doc.root()["tokens"];
  std::string bytes;
  bool good = tokens.is_array();
  size_t index = 0;
  if (good) {
    for (const recipe::JsonValue token : tokens) {
      const double id = token.is_number() ? token.number() : -1;
      good = id >= 0 && id < static_cast<double>(tokenizer_.size()) && id == std::floor(id) &&
             tokenizer_.has(static_cast<types::TokenId>(id));
      if (!good) break;
      bytes += tokenizer_.bytes_of(static_cast<types::TokenId>(id));
      ++index;
    }
  }
  if (!good) {
    const std::string path = tokens.is_array() ? fmt::format("tokens[{}]", index) : "tokens";
    refuse(exchange,
           {core::Code::kInvalidRequest,
            fmt::format("{}: must be {}", path,
                        tokens.is_array() ? "an id of the vocabulary" : "a list of token ids"),
            path},
           recipe::Api::kChat);
    return;
  }
  std::string out = R"({"prompt":)";
  recipe::append_json_string(out, tokenizer::lossy_utf8(bytes));
  exchange->respond({200, "application/json", {}, out + "}"});
}

http::Response Service::error_response(int status, std::string_view path,
                                       std::string_view message) {
  const core::Error error{code_of_status(status), std::string(message)};
  return {status,
          "application/json",
          {},
          recipe::error_body(error, api_of_path(path), config_.codec.compat)};
}

metrics::Counter& Service::answered(std::string_view route, int status) {
  const std::lock_guard lock(answered_mutex_);
  metrics::Counter*& counter = answered_[{route.data(), status}];
  if (counter == nullptr) {
    counter =
        &registry_.counter("hadal_http_requests_total", "Answered HTTP requests.",
                           {{"route", std::string(route)}, {"status", fmt::format("{}", status)}});
  }
  return *counter;
}

void Service::on_done(const http::Exchange& exchange, std::chrono::microseconds took) {
  constexpr std::string_view kUnknown = "unknown";
  const http::Request& request = exchange.request();
  const std::string_view route = exchange.route().empty() ? kUnknown : exchange.route();
  answered(route, exchange.status()).add();
  if (config_.spans != nullptr)
    trace_request(request, route, exchange.status(), took, *config_.spans);
  if (!config_.log_requests || route == "/metrics" || route == "/health" || route == "/ready")
    return;
  HADAL_LOG(kInfo, "http", "{} {} {} {:.1f} ms id={} peer={}", request.method, route,
            exchange.status(), static_cast<double>(took.count()) / 1000.0, request.request_id,
            request.peer);
}

}  // namespace hadal::serving
