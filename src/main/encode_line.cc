#include "main/encode_line.h"

#include <fmt/format.h>

#include "base/tokenizer/tokenizer.h"
#include "gateway/anthropic/messages_request.h"
#include "gateway/openai/chat_request.h"
#include "gateway/openai/completions_request.h"
#include "gateway/openai/responses_request.h"
#include "gateway/recipe/conversation_json.h"
#include "gateway/recipe/encode.h"
#include "gateway/recipe/error_body.h"
#include "main/codec_line.h"

namespace hadal::main {

using recipe::append_json_string;
using recipe::CodecOptions;
using recipe::CodecRequest;
using recipe::Conversation;
using recipe::JsonValue;
using recipe::OutputConstraint;

namespace {

void field(std::string& out, std::string_view name) {
  out += ",\"";
  out += name;
  out += "\":";
}

void append_bool(std::string& out, bool value) {
  out += value ? "true" : "false";
}

template <typename T>
void append_optional(std::string& out, const std::optional<T>& value) {
  out += value ? fmt::format("{}", *value) : "null";
}

void append_ids(std::string& out, const std::vector<types::TokenId>& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += fmt::format_int(ids[i]).c_str();
  }
  out += ']';
}

std::string_view stage_name(recipe::StartStage stage) {
  switch (stage) {
    case recipe::StartStage::kAnswer:
      return "null";
    case recipe::StartStage::kReasoning:
      return "\"reasoning_start\"";
    case recipe::StartStage::kReasoningContinuation:
      return "\"reasoning_continuation\"";
    case recipe::StartStage::kContentContinuation:
      return "\"content_continuation\"";
  }
  return "null";
}

std::string_view detail_name(recipe::ImageDetail detail) {
  switch (detail) {
    case recipe::ImageDetail::kLow:
      return "low";
    case recipe::ImageDetail::kOriginal:
      return "original";
    case recipe::ImageDetail::kAuto:
      return "auto";
    case recipe::ImageDetail::kHigh:
      break;
  }
  return "high";
}

void append_images(std::string& out, const Conversation& conversation,
                   const recipe::RenderedPrompt& prompt) {
  if (prompt.images.empty()) return;
  field(out, "images");
  out += '[';
  for (size_t i = 0; i < prompt.images.size(); ++i) {
    const recipe::ImageRef& image = conversation.images[prompt.images[i]];
    if (i > 0) out += ',';
    const bool data = image.kind == recipe::ImageRef::Kind::kBase64 ||
                      (image.source.size() > 5 && (image.source[0] | 0x20) == 'd');
    out += fmt::format(R"({{"kind":"{}","detail":"{}","path":)", data ? "data_url" : "url",
                       detail_name(image.detail));
    append_json_string(out, image.path);
    out += '}';
  }
  out += ']';
}

void append_parse(std::string& out, const recipe::ParsePlan& plan) {
  field(out, "parse");
  out += "{\"tool_calls\":";
  append_bool(out, plan.tool_calls);
  field(out, "starts_in_tool_calls");
  append_bool(out, plan.starts_in_tool_calls);
  field(out, "json");
  append_bool(out, plan.json);
  field(out, "stage");
  out += stage_name(plan.stage);
  field(out, "stop");
  out += '[';
  for (size_t i = 0; i < plan.stop.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, plan.stop[i]);
  }
  out += "]}";
}

void append_sampling(std::string& out, const recipe::Sampling& sampling) {
  field(out, "sampling");
  out += "{\"max_tokens\":";
  append_optional(out, sampling.max_tokens);
  field(out, "temperature");
  recipe::append_json_double(out, sampling.temperature, recipe::FloatStyle::kPython);
  field(out, "top_p");
  recipe::append_json_double(out, sampling.top_p, recipe::FloatStyle::kPython);
  field(out, "logprobs");
  append_bool(out, sampling.logprobs);
  field(out, "top_logprobs");
  append_optional(out, sampling.top_logprobs);
  field(out, "seed");
  append_optional(out, sampling.seed);
  out += '}';
}

void append_constraint(std::string& out, const OutputConstraint& constraint) {
  field(out, "constraint");
  const bool quoted = constraint.text.empty() ||
                      constraint.kind == OutputConstraint::Kind::kRegex ||
                      constraint.kind == OutputConstraint::Kind::kGrammar;
  std::string_view kind;
  switch (constraint.kind) {
    case OutputConstraint::Kind::kNone:
      out += "null";
      return;
    case OutputConstraint::Kind::kJson:
      kind = "json";
      break;
    case OutputConstraint::Kind::kRegex:
      kind = "regex";
      break;
    case OutputConstraint::Kind::kToolCall:
      kind = "tool_call";
      break;
    case OutputConstraint::Kind::kToolCallRequired:
      kind = "tool_call_required";
      break;
    case OutputConstraint::Kind::kGrammar:
      kind = "grammar";
      break;
  }
  out += fmt::format(R"({{"kind":"{}","value":)", kind);
  if (quoted) {
    append_json_string(out, constraint.text);
  } else {
    out += constraint.text;
  }
  out += '}';
}

void append_namespaces(std::string& out, const recipe::ParsePlan& plan) {
  if (plan.namespaces.empty()) return;
  field(out, "namespaces");
  out += '{';
  for (size_t i = 0; i < plan.namespaces.size(); ++i) {
    const recipe::NamespacedName& name = plan.namespaces[i];
    if (i > 0) out += ',';
    append_json_string(out, name.name);
    out += ":[";
    append_json_string(out, name.ns);
    out += ',';
    append_json_string(out, name.local_name);
    out += ']';
  }
  out += '}';
}

void append_settings(std::string& out, const CodecRequest& request, uint64_t n_tokens,
                     const CodecOptions& options, recipe::Api api) {
  const Conversation& conversation = request.conversation;
  field(out, "thinking");
  append_bool(out, conversation.thinking);
  field(out, "effort");
  if (!conversation.thinking) {
    out += "null";
  } else if (conversation.effort && conversation.effort_is_number) {
    append_optional(out, conversation.effort);
  } else {
    append_json_string(out, conversation.effort_word);
  }
  append_parse(out, request.parse);
  append_sampling(out, request.sampling);
  field(out, "resolved_max_tokens");
  const auto resolved = recipe::resolve_max_tokens(request, n_tokens, options);
  if (resolved) {
    out += fmt::format("{}", *resolved);
  } else {
    out += "{\"error\":" + recipe::error_body(resolved.error(), api, options.compat) + "}";
  }
  append_constraint(out, request.constraint);
  field(out, "stream");
  append_bool(out, request.response.stream);
  append_namespaces(out, request.parse);
}

std::string id_prefix(const CodecLine& line) {
  std::string out = "{\"id\":";
  recipe::append_json_compact(out, line.id, recipe::FloatStyle::kPython);
  return out;
}

std::string refusal(const CodecLine& line, const core::Error& error) {
  return fmt::format(R"({},"error":{{"status":{},"body":{}}}}})", id_prefix(line),
                     recipe::http_status(error.code),
                     recipe::error_body(error, line.api, line.options.compat));
}

core::Result<std::string> encode_body(const CodecLine& line,
                                      const tokenizer::Tokenizer& tokenizer) {
  HADAL_TRY(const CodecRequest request, parse_request(line));
  const recipe::RenderedPrompt prompt = recipe::render_request(request, line.options);
  HADAL_TRY(const std::vector<types::TokenId> ids, request.raw_tokens.empty()
                                                       ? recipe::tokenize(prompt, tokenizer)
                                                       : core::Result(request.raw_tokens));
  std::string out = id_prefix(line);
  out.reserve(prompt.text.size() + 8 * ids.size() + 1024);
  field(out, "prompt");
  append_json_string(out, prompt.text);
  field(out, "token_ids");
  append_ids(out, ids);
  append_images(out, request.conversation, prompt);
  if (!line.is_conversation) append_settings(out, request, ids.size(), line.options, line.api);
  return out += '}';
}

std::string encode_text(const CodecLine& line, const tokenizer::Tokenizer& tokenizer) {
  std::string out = id_prefix(line);
  field(out, "token_ids");
  std::vector<types::TokenId> ids;
  tokenizer.encode(
      line.object["text"].str(),
      line.object["special"].is_true() ? tokenizer::Added::kMatch : tokenizer::Added::kIgnore, ids);
  append_ids(out, ids);
  return out += '}';
}

}  // namespace

core::Result<CodecRequest> parse_body(recipe::Api api, std::string body,
                                      const CodecOptions& options) {
  switch (api) {
    case recipe::Api::kMessages:
      return anthropic::parse_messages_request(std::move(body), options);
    case recipe::Api::kResponses:
      return openai::parse_responses_request(std::move(body), options);
    case recipe::Api::kCompletions:
      return openai::parse_completions_request(std::move(body), options);
    case recipe::Api::kChat:
      break;
  }
  return openai::parse_chat_request(std::move(body), options);
}

core::Result<CodecRequest> parse_request(const CodecLine& line) {
  const JsonValue text = line.object["body_text"];
  const JsonValue object = line.object["body"];
  std::string body;
  if (text.is_string()) {
    body = text.str();
  } else if (object.is_object() || object.is_array()) {
    body = line.document.source(object);
  } else {
    recipe::append_json_compact(body, object, recipe::FloatStyle::kPython);
  }
  if (line.is_conversation) return recipe::parse_conversation(std::move(body), line.options);
  return parse_body(line.api, std::move(body), line.options);
}

std::optional<std::string> encode_line(std::string_view text, const tokenizer::Tokenizer& tokenizer,
                                       const CodecOptions& defaults) {
  CodecLine line;
  if (!read_codec_line(text, defaults, line)) return std::nullopt;
  if (!line.problem.has_value()) return refusal(line, line.problem.error());
  if (line.object["text"].is_string()) return encode_text(line, tokenizer);
  core::Result<std::string> out = encode_body(line, tokenizer);
  return one_line(out ? std::move(out).value() : refusal(line, out.error()));
}

}  // namespace hadal::main
