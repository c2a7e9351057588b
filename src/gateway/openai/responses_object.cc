#include "gateway/openai/responses_object.h"

#include "gateway/openai/responses_response.h"
#include "gateway/recipe/json_writer.h"

namespace hadal::openai {

using recipe::append_number;
using recipe::append_quoted;

namespace {

void append_usage(std::string& out, const recipe::Usage& usage) {
  out.append(R"({"input_tokens":)");
  append_number(out, usage.prompt_tokens);
  out.append(R"(,"input_tokens_details":{"cached_tokens":)");
  append_number(out, usage.cached_tokens);
  if (usage.image_tokens > 0) {
    out.append(R"(,"text_tokens":)");
    append_number(out, usage.prompt_tokens - usage.image_tokens);
    out.append(R"(,"image_tokens":)");
    append_number(out, usage.image_tokens);
  }
  out.append(R"(},"output_tokens":)");
  append_number(out, usage.completion_tokens);
  out.append(R"(,"output_tokens_details":{"reasoning_tokens":)");
  append_number(out, usage.reasoning_tokens);
  out.append(R"(},"total_tokens":)");
  append_number(out, usage.prompt_tokens + usage.completion_tokens);
  out.push_back('}');
}

}  // namespace

void append_responses_object(std::string& out, const recipe::ResponsePlan& plan,
                             const recipe::ResponseIdentity& identity,
                             const ResponsesState& state) {
  static const recipe::ResponsesEcho kDefaults;
  const recipe::ResponsesEcho& echo = plan.echo != nullptr ? *plan.echo : kDefaults;
  auto put = [&](std::string_view key, std::string_view json) {
    out.append(",\"").append(key).append("\":").append(json);
  };
  out.append(R"({"id":)");
  append_quoted(out, identity.id);
  out.append(R"(,"object":"response","created_at":)");
  append_number(out, identity.created);
  out.append(R"(,"status":")").append(state.status).push_back('"');
  put("background", echo.background);
  out.append(R"(,"completed_at":)");
  if (state.completed_at.has_value()) {
    append_number(out, *state.completed_at);
  } else {
    out.append("null");
  }
  put("content_filters", "null");
  put("error", state.error);
  put("frequency_penalty", "0.0");
  out.append(R"(,"incomplete_details":)");
  if (state.incomplete_reason.empty()) {
    out.append("null");
  } else {
    out.append(R"({"reason":")").append(state.incomplete_reason).append("\"}");
  }
  put("instructions", echo.instructions);
  put("max_output_tokens", echo.max_output_tokens);
  put("max_tool_calls", echo.max_tool_calls);
  out.append(R"(,"model":)");
  append_quoted(out, plan.model);
  put("moderation", "null");
  out.append(R"(,"output":[)").append(state.output).push_back(']');
  put("parallel_tool_calls", echo.parallel_tool_calls);
  put("presence_penalty", "0.0");
  put("previous_response_id", echo.previous_response_id);
  if (echo.conversation != "null") put("conversation", echo.conversation);
  put("prompt_cache_key", echo.prompt_cache_key);
  put("prompt_cache_retention", "null");
  put("reasoning", echo.reasoning);
  put("safety_identifier", echo.safety_identifier);
  put("service_tier", echo.service_tier);
  put("store", echo.store);
  put("temperature", echo.temperature);
  put("text", echo.text);
  put("tool_choice", echo.tool_choice);
  put("tools", echo.tools);
  put("top_logprobs", echo.top_logprobs);
  put("top_p", echo.top_p);
  put("truncation", echo.truncation);
  out.append(R"(,"usage":)");
  if (state.usage == nullptr) {
    out.append("null");
  } else {
    append_usage(out, *state.usage);
  }
  put("user", echo.user);
  put("metadata", echo.metadata);
  if (!state.extension.empty()) put("hadal", state.extension);
  out.push_back('}');
}

std::string empty_response_object(const recipe::ResponsePlan& plan,
                                  const recipe::ResponseIdentity& identity,
                                  std::string_view status) {
  std::string out;
  append_responses_object(out, plan, identity, {.status = status});
  return out;
}

}  // namespace hadal::openai
