#include "gateway/serving/request_maker.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <fmt/format.h>

#include "base/metrics/trace.h"
#include "gateway/anthropic/response_factory.h"
#include "gateway/http/message.h"
#include "gateway/openai/responses_request.h"
#include "gateway/openai/responses_response.h"
#include "gateway/recipe/sealed_text.h"
#include "gateway/serving/engine_request.h"

namespace hadal::serving {
namespace {

uint64_t random_salt() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

core::Status check_unstored(const recipe::ResponsePlan& plan) {
  const char* field = !plan.previous_response_id.empty() ? "previous_response_id"
                      : !plan.conversation.empty()       ? "conversation"
                      : plan.background                  ? "background"
                                                         : nullptr;
  if (field == nullptr) return {};
  return core::Error{core::Code::kInvalidRequest,
                     fmt::format("{}: responses are not stored here; send the whole input", field),
                     field};
}

std::string hex_of(uint64_t salt) {
  std::string text;
  http::append_hex(text, salt, 16);
  return text;
}

std::string name_of(std::string_view prefix, std::string_view salt, uint64_t number) {
  std::string name;
  name.reserve(prefix.size() + salt.size() + 16);
  name.append(prefix).append(salt);
  http::append_hex(name, number, 8);
  return name;
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

RequestMaker::RequestMaker(const Config& config, const tokenizer::Tokenizer& tokenizer,
                           const types::EnginePort& engine, ScriptFile* script_file)
    : config_(config),
      tokenizer_(tokenizer),
      vocabulary_(tokenizer),
      engine_(engine),
      script_file_(script_file),
      salt_(random_salt()),
      salt_text_(hex_of(salt_)) {}

std::string RequestMaker::new_name() {
  return name_of("", salt_text_, next_number_.fetch_add(1));
}

std::optional<std::chrono::steady_clock::time_point> RequestMaker::deadline_of(
    const Origin& origin) const {
  if (config_.deadline.count() == 0 || origin.offline) return std::nullopt;
  return std::chrono::steady_clock::now() + config_.deadline;
}

recipe::CodecOptions RequestMaker::codec_for(std::string_view tenant) const {
  recipe::CodecOptions options = config_.codec;
  if (!options.reasoning_key.empty())
    options.reasoning_key = recipe::tenant_sealing_key(options.reasoning_key, tenant);
  return options;
}

core::Result<recipe::CodecRequest> RequestMaker::parse(const Dialect& dialect, std::string body,
                                                       const recipe::CodecOptions& options,
                                                       const Origin& origin) const {
  if (dialect.api == recipe::Api::kResponses)
    return openai::parse_responses_request(std::move(body), options, origin.history);
  return dialect.parse(std::move(body), options);
}

core::Result<MadeRequest> RequestMaker::make(const Dialect& dialect, std::string body,
                                             const Origin& origin) {
  // Most requests need nothing of their own.
  std::optional<recipe::CodecOptions> own;
  if (!config_.codec.reasoning_key.empty() || origin.offline) {
    own = codec_for(origin.tenant);
    if (origin.offline) own->web_search = own->web_fetch = false;
  }
  const recipe::CodecOptions& options = own ? *own : config_.codec;
  auto parsed = parse(dialect, std::move(body), options, origin);
  if (!parsed) return std::move(parsed).error();
  recipe::CodecRequest& codec = *parsed;
  const bool scripted_by_file =
      config_.script && !codec.extension.script && script_file_ != nullptr;
  if (scripted_by_file) codec.extension.script = script_file_->match(codec, dialect.api);
  const uint32_t n = std::max(1u, codec.sampling.n);
  const uint64_t number = next_number_.fetch_add(n);
  std::string id = origin.id.empty() ? name_of(dialect.id_prefix, salt_text_, number) : origin.id;
  // A background response may be made again by the next process. Then it is to be the same, so that
  // who reads its stream goes on where it was: its draws and names follow from its id.
  const uint64_t seed = codec.response.background ? metrics::scattered_id(hash_of(id), 0)
                                                  : metrics::scattered_id(salt_, number);
  const EngineView view{.tokenizer = &tokenizer_,
                        .limits = engine_.limits(),
                        .end_token = config_.end_token,
                        .seed = seed,
                        .script = config_.script,
                        .deadline = deadline_of(origin)};
  HADAL_TRY(types::Request made, make_engine_request(codec, options, view));
  made.tenant = origin.tenant;
  made.priority = origin.priority;

  MadeRequest out;
  out.api = dialect.api;
  out.event_times = codec.extension.event_times;
  out.id = std::move(id);
  out.created = origin.created != 0 ? origin.created : unix_seconds();
  out.model = codec.response.model;
  recipe::ResponsePlan& plan = codec.response;
  if (dialect.api == recipe::Api::kResponses) {
    if (!config_.has_store || origin.offline) {
      HADAL_TRY_VOID(check_unstored(plan));
      plan.store = false;
      recipe::ResponsesEcho echo = plan.echo != nullptr ? *plan.echo : recipe::ResponsesEcho();
      echo.store = "false";
      plan.echo = std::make_shared<const recipe::ResponsesEcho>(std::move(echo));
    }
    out.store = plan.store;
    out.background = plan.background;
    out.previous = plan.previous_response_id;
    out.conversation = plan.conversation;
  }
  recipe::ResponseIdentity identity;
  identity.id = out.id;
  identity.created = out.created;
  identity.fingerprint = "hadal";
  identity.seed = seed;
  identity.reasoning_key = options.reasoning_key;
  identity.now = unix_seconds;
  if (out.background) out.queued_object = openai::empty_response_object(plan, identity, "queued");

  std::vector<types::TokenId> prompt_ids;
  if (codec.extension.return_token_ids) prompt_ids = made.prompt;
  out.prompt.prompt_tokens = static_cast<uint32_t>(made.prompt.size());
  out.requests.reserve(n);
  for (uint32_t choice = 0; choice + 1 < n; ++choice) out.requests.push_back(made);
  out.requests.push_back(std::move(made));
  for (uint32_t choice = 0; choice < n; ++choice) {
    out.requests[choice].id = static_cast<types::RequestId>(number + choice);
    out.requests[choice].sampling.stream = choice;
  }
  if (codec.server_tools.any()) {
    out.rounds = tool_rounds(codec, options, view, out.requests.front(), scripted_by_file);
  }
  out.text = std::move(codec.text);
  out.stream = anthropic::make_response_stream(std::move(codec.parse), std::move(plan),
                                               std::move(codec.extension), vocabulary_,
                                               std::move(identity), std::move(prompt_ids));
  return out;
}

// The stream gets the plans of its own; the conversation goes on in the rounds.
std::shared_ptr<ToolRounds> RequestMaker::tool_rounds(recipe::CodecRequest& codec,
                                                      const recipe::CodecOptions& options,
                                                      const EngineView& view,
                                                      const types::Request& request,
                                                      bool scripted_by_file) const {
  ToolRounds::Parts parts{.codec = {},
                          .options = options,
                          .engine = view,
                          .provider = config_.web,
                          .max_tokens = request.max_tokens,
                          .prepare = {}};
  parts.codec.text = codec.text;
  parts.codec.conversation = std::move(codec.conversation);
  parts.codec.parse = codec.parse;
  parts.codec.sampling = codec.sampling;
  parts.codec.constraint = codec.constraint;
  parts.codec.format = codec.format;
  parts.codec.server_tools = codec.server_tools;
  parts.codec.response.api = codec.response.api;
  parts.codec.extension = codec.extension;
  if (scripted_by_file) {
    parts.prepare = [this](recipe::CodecRequest& next) {
      next.extension.script = script_file_->match(next, next.response.api);
    };
  }
  return std::make_shared<ToolRounds>(std::move(parts));
}

}  // namespace hadal::serving
