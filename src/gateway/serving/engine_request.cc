#include "gateway/serving/engine_request.h"

#include <algorithm>

#include <fmt/format.h>

#include "gateway/recipe/template_text.h"
#include "gateway/serving/call_constraint.h"
#include "gateway/serving/call_path.h"
#include "gateway/serving/format_constraint.h"

namespace hadal::serving {
namespace {

// Of all choices of one request together: four times the longest context.
constexpr uint64_t kMostPromptTokens = 4 << 20;

core::Error refused(std::string message, std::string param) {
  return {core::Code::kInvalidRequest, std::move(message), std::move(param)};
}

types::SamplingParams sampling_of(const recipe::CodecRequest& request, uint64_t seed) {
  const recipe::Sampling& from = request.sampling;
  types::SamplingParams to;
  to.temperature = static_cast<float>(from.temperature);
  to.top_p = static_cast<float>(from.top_p);
  to.min_p = static_cast<float>(from.min_p);
  to.top_k = std::max(from.top_k, 0);
  to.repetition_penalty = static_cast<float>(from.repetition_penalty);
  to.presence_penalty = static_cast<float>(from.presence_penalty);
  to.frequency_penalty = static_cast<float>(from.frequency_penalty);
  to.logit_bias = from.logit_bias;
  to.logprobs = from.logprobs;
  to.n_top_logprobs = static_cast<int32_t>(from.top_logprobs.value_or(0));
  to.seed = from.seed.value_or(seed);
  return to;
}

}  // namespace

types::ScriptPlay make_script_play(std::string_view text, uint32_t step, std::string_view finish,
                                   uint32_t pace_ms, const tokenizer::Tokenizer& tokenizer) {
  types::ScriptPlay play;
  play.tokens.reserve(text.size() / 4 + 4);
  tokenizer.encode(text, tokenizer::Added::kMatch, play.tokens);
  play.step = std::max(step, 1u);
  play.pace_ms = pace_ms;
  play.ends_with_stop = finish != "length";
  return play;
}

core::Result<types::Request> make_engine_request(const recipe::CodecRequest& request,
                                                 const recipe::CodecOptions& options,
                                                 const EngineView& engine) {
  if (!request.conversation.images.empty()) {
    return refused("this server reads no pictures yet; send text only",
                   request.conversation.images.front().field);
  }
  const recipe::Extension& extension = request.extension;
  if (!engine.script && extension.draft.value_or(0) > 0)
    return refused("drafting is not available on this server yet; leave hadal.draft out or 0",
                   "hadal.draft");
  if (!engine.script && !extension.accept.empty())
    return refused("drafting is not available on this server yet; leave hadal.accept out",
                   "hadal.accept");

  types::Request out;
  if (!request.raw_tokens.empty()) {
    out.prompt = request.raw_tokens;
  } else {
    HADAL_TRY(out.prompt,
              recipe::tokenize(recipe::render_request(request, options), *engine.tokenizer));
  }
  if (out.prompt.empty()) return refused("the prompt is empty; give at least one token", "prompt");
  HADAL_TRY(const uint32_t by_dialect,
            recipe::resolve_max_tokens(request, out.prompt.size(), options));
  const uint32_t context = std::min(engine.limits.max_context, engine.limits.max_request_tokens);
  if (out.prompt.size() >= context) {
    return core::Error{core::Code::kContextTooLong,
                       fmt::format("the prompt has {} tokens and this server takes {} with the "
                                   "answer; shorten the conversation",
                                   out.prompt.size(), context),
                       "messages"};
  }
  // Each choice is a sequence with the prompt of its own: a body of 2 MB could ask for gigabytes.
  if (const uint64_t most = std::max<uint64_t>(1, kMostPromptTokens / out.prompt.size());
      request.sampling.n > most) {
    return refused(fmt::format("{} choices of a prompt of {} tokens are more than {} tokens "
                               "together; lower n to at most {}, or send several requests",
                               request.sampling.n, out.prompt.size(), kMostPromptTokens, most),
                   "n");
  }
  const auto room = context - static_cast<uint32_t>(out.prompt.size());
  if (request.sampling.max_tokens && by_dialect > room) {
    return core::Error{core::Code::kContextTooLong,
                       fmt::format("the prompt has {} tokens and {} are asked for, but this server "
                                   "takes {} in all; lower max_tokens to at most {}",
                                   out.prompt.size(), by_dialect, context, room),
                       "max_tokens"};
  }
  out.max_tokens = std::max(1u, std::min(by_dialect, room));
  out.sampling = sampling_of(request, engine.seed);
  out.min_tokens = extension.min_tokens;
  out.ignore_eos = extension.ignore_eos;
  out.use_prefix_cache = extension.prefix_cache;
  out.want_timings = extension.timings;
  out.deadline = engine.deadline;
  if (engine.end_token >= 0) out.end_tokens = {engine.end_token};
  if (request.sampling.thinking_budget && recipe::begins_in_reasoning(request.parse.stage)) {
    const types::TokenId end = engine.tokenizer->id_of(recipe::kThinkClose);
    if (end < 0) {
      return refused("the model's vocabulary has no token that ends its thinking",
                     "thinking.budget_tokens");
    }
    out.thinking_budget = {*request.sampling.thinking_budget, {end}};
  }
  if (!engine.script) {
    out.constraint = request.conversation.has_visible_tools()
                         ? make_call_constraint(request, options)
                         : make_format_constraint(request);
  }
  if (!engine.script && out.constraint.kind == types::Constraint::Kind::kNone) {
    HADAL_TRY(out.path, make_call_path(request, options, *engine.tokenizer, engine.end_token));
  }
  if (extension.script) {
    const auto& script = *extension.script;
    out.script = make_script_play(script.text, script.step, script.finish, script.pace_ms,
                                  *engine.tokenizer);
  }
  return out;
}

}  // namespace hadal::serving
