#include "gateway/openai/completions_request.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "gateway/openai/chat_types.h"
#include "gateway/openai/request_fields.h"
#include "gateway/recipe/extension.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::openai {

using recipe::CodecOptions;
using recipe::CodecRequest;
using recipe::FieldCheck;
using recipe::invalid;
using recipe::JsonType;
using recipe::JsonValue;
using recipe::Need;
using recipe::Path;

namespace {

constexpr int64_t kMaxTopLogprobs = 20;

// The ids of a list of whole numbers (47.0 is one), or nothing.
std::vector<int32_t> read_ids(JsonValue value) {
  std::vector<int32_t> ids;
  if (!value.is_array()) return ids;
  for (const JsonValue id : value) {
    const double number = id.is_number() ? id.number() : -1;
    if (!(number >= 0 && number <= INT32_MAX) || number != std::floor(number)) return {};
    ids.push_back(static_cast<int32_t>(number));
  }
  return ids;
}

void check_types(FieldCheck& check, JsonValue body, const CodecOptions& options) {
  const Path root;
  if (!check.is_object(body, root)) return;
  check.string(body, "model", root, Need::kRequired);
  check_sampling_types(check, body, options);
  check.string(body, "suffix", root, Need::kOptional);
  check.boolean(body, "echo", root, Need::kOptional);
  check.integer(body, "best_of", root, Need::kOptional, 255);
  const JsonValue logprobs = body["logprobs"];
  if (!logprobs.is_bool()) {
    check.integer(body, "logprobs", root, Need::kOptional, kMaxTopLogprobs);
  }
}

core::Status read_prompt(JsonValue body, CodecRequest& request) {
  JsonValue prompt = body["prompt"];
  // A list of one prompt is that prompt.
  if (prompt.is_array() && prompt.size() == 1 && !(*prompt.begin()).is_number()) {
    prompt = *prompt.begin();
  }
  if (prompt.is_string()) {
    request.raw_prompt = prompt.str();
    if (body["suffix"].is_string()) request.raw_suffix = body["suffix"].str();
    return {};
  }
  if (std::vector<int32_t> ids = read_ids(prompt); !ids.empty()) {
    if (body["suffix"].is_string()) {
      return invalid("a suffix needs a prompt of text, not of token ids", "suffix");
    }
    request.raw_tokens = std::move(ids);
    return {};
  }
  if (prompt.is_array() && prompt.size() > 1) {
    return invalid("several prompts in one request are not supported: send one request each",
                   "prompt");
  }
  return invalid("`prompt` must be a text or a list of token ids", "prompt");
}

core::Status read_request(JsonValue body, const CodecOptions& options, CodecRequest& request) {
  const std::string_view model = body["model"].str();
  HADAL_TRY_VOID(recipe::check_model(model, recipe::Api::kCompletions, options));
  request.response.model = model;
  HADAL_TRY_VOID(read_prompt(body, request));
  recipe::SamplingFields fields;
  HADAL_TRY_VOID(read_completion_sampling(body, options, fields, request));
  HADAL_TRY_VOID(read_stream_and_stop(body, options, request));
  const JsonValue best_of = body["best_of"];
  if (best_of && best_of.node()->u > request.sampling.n) {
    return invalid("best_of above n is not supported", "best_of");
  }
  request.conversation.thinking = false;
  recipe::finish_request(fields, {}, options, request);
  // A completion has no dialect that overrules its sampling.
  request.sampling.temperature = fields.temperature.value_or(1.0);
  request.sampling.top_p = fields.top_p.value_or(1.0);
  const JsonValue logprobs = body["logprobs"];
  if (logprobs.is(JsonType::kUnsigned)) {
    request.sampling.logprobs = true;
    request.sampling.top_logprobs = static_cast<uint32_t>(logprobs.node()->u);
  } else {
    request.sampling.logprobs = logprobs.is_true();
  }
  request.response.logprobs = request.sampling.logprobs;
  request.response.top_logprobs = request.sampling.top_logprobs;
  request.response.echo_prompt = body["echo"].is_true();
  if (request.response.echo_prompt && request.raw_prompt) {
    request.response.prompt_text = *request.raw_prompt;
  }
  return {};
}

}  // namespace

core::Result<CodecRequest> parse_completions_request(std::string body,
                                                     const CodecOptions& options) {
  CodecRequest request;
  request.response.api = recipe::Api::kCompletions;
  request.text = std::make_shared<recipe::RequestText>();
  request.text->body = std::move(body);
  HADAL_TRY_VOID(request.text->doc.parse(request.text->body));
  FieldCheck check(options.compat);
  const JsonValue root = request.text->doc.root();
  check_types(check, root, options);
  recipe::read_extension(check, root, Path{}, request.extension);
  HADAL_TRY_VOID(check.status());
  HADAL_TRY_VOID(read_request(root, options, request));
  return request;
}

}  // namespace hadal::openai
