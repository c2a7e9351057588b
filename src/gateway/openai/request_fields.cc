#include "gateway/openai/request_fields.h"

#include <charconv>

#include <fmt/format.h>

namespace hadal::openai {

using recipe::CodecOptions;
using recipe::CodecRequest;
using recipe::FieldCheck;
using recipe::invalid;
using recipe::JsonType;
using recipe::JsonValue;
using recipe::Path;

namespace {

constexpr uint64_t kMaxChoices = 128;

std::optional<double> optional_number(JsonValue value) {
  if (!value.is_number()) return std::nullopt;
  return value.number();
}

std::optional<uint64_t> optional_integer(JsonValue value) {
  if (!value.is(JsonType::kUnsigned)) return std::nullopt;
  return value.node()->u;
}

core::Status read_choices(JsonValue body, const CodecOptions& options, CodecRequest& request) {
  const std::optional<uint64_t> n = optional_integer(body["n"]);
  if (!n || *n == 1) return {};
  if (options.compat) return invalid("Invalid n value (currently only n = 1 is supported)", "n");
  if (*n < 1 || *n > kMaxChoices) {
    return invalid(fmt::format("Invalid n value, the valid range of n is [1, {}]", kMaxChoices),
                   "n");
  }
  request.sampling.n = static_cast<uint32_t>(*n);
  return {};
}

core::Status read_own_sampling(JsonValue body, CodecRequest& request) {
  recipe::Sampling& sampling = request.sampling;
  const double min_p = optional_number(body["min_p"]).value_or(0);
  if (!(min_p >= 0 && min_p <= 1)) {
    return invalid("Invalid min_p value, the valid range of min_p is [0, 1]", "min_p");
  }
  const double repetition = optional_number(body["repetition_penalty"]).value_or(1);
  if (!(repetition > 0 && repetition <= 2)) {
    return invalid(
        "Invalid repetition_penalty value, the valid range of repetition_penalty is "
        "(0, 2]",
        "repetition_penalty");
  }
  sampling.min_p = min_p;
  sampling.repetition_penalty = repetition;
  sampling.top_k = static_cast<int32_t>(optional_integer(body["top_k"]).value_or(0));
  recipe::for_each_member(body["logit_bias"], [&](std::string_view key, JsonValue value) {
    int32_t id = 0;
    std::from_chars(key.data(), key.data() + key.size(), id);
    sampling.logit_bias.emplace_back(id, static_cast<float>(value.number()));
  });
  return {};
}

core::Status read_logprobs(JsonValue body, CodecRequest& request) {
  const bool logprobs = body["logprobs"].is_true();
  if (!body["top_logprobs"].absent_or_null() && !logprobs) {
    return invalid(
        "Invalid top_logprobs and logprobs value, logprobs must be set to true if "
        "top_logprobs is used.",
        "top_logprobs");
  }
  request.sampling.logprobs = logprobs;
  return {};
}

}  // namespace

core::Status read_sampling(JsonValue body, const CodecOptions& options,
                           recipe::SamplingFields& fields, CodecRequest& request) {
  HADAL_TRY_VOID(read_logprobs(body, request));
  fields.top_logprobs = optional_integer(body["top_logprobs"]);
  return read_completion_sampling(body, options, fields, request);
}

core::Status read_completion_sampling(JsonValue body, const CodecOptions& options,
                                      recipe::SamplingFields& fields, CodecRequest& request) {
  fields.temperature = optional_number(body["temperature"]);
  fields.top_p = optional_number(body["top_p"]);
  fields.frequency_penalty = optional_number(body["frequency_penalty"]);
  fields.presence_penalty = optional_number(body["presence_penalty"]);
  fields.max_tokens = optional_integer(body["max_tokens"]);
  if (!options.compat) {
    if (const auto newer = optional_integer(body["max_completion_tokens"])) {
      fields.max_tokens = newer;
      fields.max_tokens_name = "max_completion_tokens";
    }
  }
  fields.seed = optional_integer(body["seed"]);
  HADAL_TRY_VOID(recipe::check_sampling(fields, options));
  HADAL_TRY_VOID(read_choices(body, options, request));
  if (!options.compat) HADAL_TRY_VOID(read_own_sampling(body, request));
  return {};
}

core::Status read_stream_and_stop(JsonValue body, const CodecOptions& options,
                                  CodecRequest& request) {
  recipe::ResponsePlan& response = request.response;
  response.stream = body["stream"].is_true();
  if (body["stream_options"].is_object()) {
    if (!response.stream) {
      return invalid("stream_options should be set along with stream = true", "stream_options");
    }
    response.include_usage = body["stream_options"]["include_usage"].is_true();
  }
  if (const JsonValue stop = body["stop"]; !stop.absent_or_null()) {
    return recipe::check_stop(stop, "stop", options, request.parse.stop);
  }
  return {};
}

recipe::ToolChoice choice_of(std::string_view word) {
  if (word == "none") return recipe::ToolChoice::kNone;
  return word == "required" ? recipe::ToolChoice::kRequired : recipe::ToolChoice::kAuto;
}

void refuse_unsupported(FieldCheck& check, JsonValue body) {
  const Path root;
  for (const JsonValue modality : body["modalities"]) {
    if (modality.str() != "text") {
      check.fail(root, "modalities", "may hold \"text\" only: this model writes nothing else");
    }
  }
  for (const std::string_view key : {"audio", "web_search_options", "functions"}) {
    if (body[key].absent_or_null()) continue;
    check.fail(root, key,
               key == "functions" ? "is not supported: declare them in `tools`"
               : key == "audio"   ? "is not supported: this model has no sound"
                                  : "is not supported: no web search is configured");
  }
}

}  // namespace hadal::openai
