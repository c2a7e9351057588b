#include "gateway/recipe/request_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "gateway/recipe/encode.h"
#include "gateway/recipe/template_text.h"
#include "gateway/recipe/turn_order.h"

namespace hadal::recipe {

namespace {

constexpr std::string_view kCompatModels[] = {"DeepSeek-V4-Pro", "DeepSeek-V4.1-Flash"};
constexpr size_t kMaxStopStrings = 16;
constexpr double kMinTopP = 0.95;  // with thinking; V4: with thinking and tools
// Defaults of max_tokens.
constexpr uint32_t kPlainTokens = 8192, kThinkingTokens = 65536, kMaxEffortTokens = 131072;
constexpr uint32_t kMaxTopLogprobs = 20;

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

core::Error out_of_range(std::string_view name, std::string_view range) {
  return invalid(fmt::format("Invalid {0} value, the valid range of {0} is {1}", name, range),
                 std::string(name));
}

bool is_base64_data_url(std::string_view url) {
  const size_t comma = url.find(',');
  return comma != std::string_view::npos && url.substr(0, comma).ends_with(";base64");
}

bool starts_with_any_case(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::equal(lower.begin(), lower.end(), text.begin(), [](char want, char c) {
    return want == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  });
}

}  // namespace

core::Error invalid(std::string message, std::string param) {
  return {core::Code::kInvalidRequest, std::move(message), std::move(param)};
}

std::string_view RequestText::keep(std::string text) {
  strings_.push_back(std::make_unique<std::string>(std::move(text)));
  return *strings_.back();
}

core::Result<JsonValue> RequestText::parse(std::string_view text) {
  auto document = std::make_unique<JsonDoc>();
  HADAL_TRY_VOID(document->parse(text));
  docs_.push_back(std::move(document));
  return docs_.back()->root();
}

core::Status check_model(std::string_view model, Api api, const CodecOptions& options) {
  if (options.compat) {
    if (std::ranges::find(kCompatModels, model) != std::end(kCompatModels)) return {};
    return invalid(fmt::format("The supported API model names are {}, but you passed {}.",
                               fmt::join(kCompatModels, ", "), model),
                   "model");
  }
  if (options.model_names.empty()) return {};
  for (const std::string& name : options.model_names) {
    if (matches(name, model)) return {};
  }
  if (api == Api::kMessages) {
    for (const std::string& name : options.messages_model_names) {
      if (matches(name, model)) return {};
    }
  }
  return core::Error{core::Code::kNotFound,
                     fmt::format("There is no model \"{}\" here. The models are: {}.",
                                 model.substr(0, 200), fmt::join(options.model_names, ", ")),
                     "model"};
}

core::Status check_sampling(SamplingFields& fields, const CodecOptions& options) {
  const auto outside = [](const std::optional<double>& value, double low, double high) {
    return value && !(*value >= low && *value <= high);
  };
  if (outside(fields.temperature, 0, 2)) return out_of_range("temperature", "[0, 2]");
  if (outside(fields.top_p, 0, 1) || (fields.top_p && *fields.top_p == 0)) {
    return out_of_range("top_p", "(0, 1.0]");
  }
  if (fields.max_tokens) {
    if (fields.max_tokens_is_lowered && *fields.max_tokens > options.max_tokens_limit) {
      fields.max_tokens = options.max_tokens_limit;
    }
    if (*fields.max_tokens < 1 || *fields.max_tokens > options.max_tokens_limit) {
      core::Error error =
          out_of_range("max_tokens", fmt::format("[1, {}]", options.max_tokens_limit));
      error.param = fields.max_tokens_name;
      return error;
    }
  }
  if (outside(fields.frequency_penalty, -2, 2)) return out_of_range("frequency_penalty", "[-2, 2]");
  if (outside(fields.presence_penalty, -2, 2)) return out_of_range("presence_penalty", "[-2, 2]");
  if (fields.top_logprobs && *fields.top_logprobs > kMaxTopLogprobs) {
    return out_of_range("top_logprobs", "[0, 20].");
  }
  if (fields.seed && *fields.seed >= uint64_t{1} << 63) return out_of_range("seed", "[0, 2^63)");
  return {};
}

core::Status check_stop(JsonValue values, std::string_view name, const CodecOptions& options,
                        std::vector<std::string>& stop) {
  const auto empty = [&](const std::string& where, std::string path) {
    return invalid(fmt::format("Invalid '{}': empty string. Expected a string with minimum length "
                               "1, but got an empty string instead.",
                               where),
                   std::move(path));
  };
  if (values.is_string()) {
    if (values.size() == 0 && values.str().empty()) return empty("stop", std::string(name));
    stop.emplace_back(values.str());
    return {};
  }
  if (values.size() > kMaxStopStrings) {
    return invalid(fmt::format("Stop string array too long: {}", values.size()), std::string(name));
  }
  size_t i = 0;
  for (const JsonValue value : values) {
    const std::string path = fmt::format("{}[{}]", name, i);
    if (value.str().empty()) {
      return empty(options.compat ? fmt::format("stop[{}]", i) : path, path);
    }
    stop.emplace_back(value.str());
    ++i;
  }
  return {};
}

void check_effort(FieldCheck& check, JsonValue object, std::string_view key, const Path& at,
                  const CodecOptions& options) {
  const JsonValue value = object[key];
  if (!options.compat && value.is_number()) {
    if (!value.is(JsonType::kUnsigned) || value.node()->u < 1 || value.node()->u > 100) {
      check.fail(at, key, "must be a word or a whole number from 1 to 100");
    }
    return;
  }
  check.word(object, key, at, Need::kOptional,
             {"none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"});
}

void resolve_thinking(const ThinkingFields& fields, const CodecOptions& options,
                      Conversation& conversation) {
  const bool has_effort = !fields.effort.absent_or_null();
  const std::string_view word = fields.effort.str();
  if (!fields.type.empty()) {
    conversation.thinking = fields.type != "disabled";
  } else if (has_effort) {
    conversation.thinking = word != "none";
  } else {
    conversation.thinking = options.default_thinking;
  }
  if (fields.effort.is(JsonType::kUnsigned)) {
    conversation.effort = static_cast<uint32_t>(fields.effort.node()->u);
    conversation.effort_is_number = true;
    // V4 has words only: the nearest one.
    conversation.effort_word = *conversation.effort <= 60   ? "low"
                               : *conversation.effort <= 90 ? "high"
                                                            : "max";
  } else if (word == "minimal" || word == "low") {
    conversation.effort_word = "low";
    conversation.effort = 50;
  } else if (word == "max" || word == "ultra") {
    conversation.effort_word = "max";
    conversation.effort = 100;
  } else {
    conversation.effort_word = word == "xhigh" ? "xhigh" : "high";
    conversation.effort = 75;
  }
}

core::Status settle_reasoning(const CodecOptions& options, std::string_view field_name,
                              bool has_tools, CodecRequest& request) {
  Conversation& conversation = request.conversation;
  size_t after_user = 0;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    if (conversation.messages[i].role == Role::kUser) after_user = i + 1;
  }
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    Message& message = conversation.messages[i];
    if (message.role != Role::kAssistant) continue;
    if (!conversation.thinking) {
      message.has_reasoning = false;
      message.reasoning = {};
      continue;
    }
    // Only what follows the last user text needs it, and there what calls or could have called.
    if (!message.has_reasoning && i >= after_user && options.reject_missing_reasoning &&
        !message.prefix && (has_tools || !message.calls.empty())) {
      return invalid(
          fmt::format("The `{}` in the thinking mode must be passed back to the API.", field_name),
          message.path);
    }
    message.has_reasoning = true;
  }
  return {};
}

namespace {

StartStage start_stage(const Conversation& conversation) {
  if (!conversation.thinking) return StartStage::kAnswer;
  if (conversation.messages.empty()) return StartStage::kReasoning;
  const Message& last = conversation.messages.back();
  if (last.role != Role::kAssistant || !last.prefix) return StartStage::kReasoning;
  if (!is_empty_content(last)) return StartStage::kContentContinuation;
  return last.reasoning.empty() ? StartStage::kReasoning : StartStage::kReasoningContinuation;
}

void append_tool(std::string& out, const ToolDef& tool) {
  out += R"({"type":"function","function":{"name":)";
  append_json_string(out, tool.name);
  out += ",\"description\":";
  if (tool.has_description) {
    append_json_string(out, tool.description);
  } else {
    out += "null";
  }
  out += ",\"parameters\":";
  append_parameters(out, tool, FloatStyle::kPython);
  out += ",\"strict\":";
  out += !tool.has_strict ? "null" : tool.strict ? "true" : "false";
  out += '}';
  if (tool.deferred) out += ",\"defer_loading\":true";
  out += '}';
}

OutputConstraint tool_constraint(const Conversation& conversation) {
  OutputConstraint constraint;
  constraint.kind = conversation.tool_choice == ToolChoice::kRequired
                        ? OutputConstraint::Kind::kToolCallRequired
                        : OutputConstraint::Kind::kToolCall;
  constraint.text = "[";
  for (const ToolDef* tool : conversation.tools) {
    if (constraint.text.size() > 1) constraint.text += ',';
    append_tool(constraint.text, *tool);
  }
  constraint.text += ']';
  return constraint;
}

OutputConstraint format_constraint(const FormatFields& format) {
  OutputConstraint constraint;
  constraint.path = format.schema_path;
  if (format.format == Conversation::Format::kJsonObject) {
    constraint.kind = OutputConstraint::Kind::kJson;
  } else if (format.format == Conversation::Format::kJsonSchema) {
    constraint.kind = OutputConstraint::Kind::kJson;
    if (format.strict_schema.empty()) {
      append_json(constraint.text, format.schema, FloatStyle::kPython);
    } else {
      constraint.text = format.strict_schema;
    }
  } else if (format.format == Conversation::Format::kRegex) {
    constraint.kind = OutputConstraint::Kind::kRegex;
    constraint.text = format.regex;
  }
  return constraint;
}

double as_f32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

void set_sampling(const SamplingFields& fields, const CodecOptions& options,
                  CodecRequest& request) {
  Sampling& sampling = request.sampling;
  const bool thinking = request.conversation.thinking;
  if (fields.max_tokens) sampling.max_tokens = static_cast<uint32_t>(*fields.max_tokens);
  sampling.temperature = thinking ? 1.0 : fields.temperature.value_or(1.0);
  const double top_p = fields.top_p.value_or(1.0);
  if (options.version == Version::kV41) {
    sampling.top_p = thinking ? std::max(kMinTopP, top_p) : 1.0;
  } else {
    const bool calls = request.conversation.has_visible_tools();
    sampling.top_p = !thinking ? top_p : calls ? kMinTopP : 1.0;
  }
  if (options.compat) {
    sampling.temperature = as_f32(sampling.temperature);
    sampling.top_p = as_f32(sampling.top_p);
  } else if (!thinking) {
    sampling.frequency_penalty = fields.frequency_penalty.value_or(0);
    sampling.presence_penalty = fields.presence_penalty.value_or(0);
  }
  sampling.seed = fields.seed;
  if (fields.top_logprobs) sampling.top_logprobs = static_cast<uint32_t>(*fields.top_logprobs);
}

}  // namespace

void append_parameters(std::string& out, const ToolDef& tool, FloatStyle style) {
  if (!tool.parameters_text.empty()) {
    out += tool.parameters_text;
  } else if (tool.parameters.absent_or_null()) {
    out += "{}";
  } else {
    append_json(out, tool.parameters, style);
  }
}

void finish_request(const SamplingFields& fields, const FormatFields& format,
                    const CodecOptions& options, CodecRequest& request) {
  const Conversation& conversation = request.conversation;
  set_sampling(fields, options, request);
  const bool visible = conversation.has_visible_tools();
  request.format = format_constraint(format);
  request.constraint = visible ? tool_constraint(conversation) : request.format;
  ParsePlan& plan = request.parse;
  plan.compat = options.compat;
  plan.version = options.version;
  plan.thinking = conversation.thinking;
  plan.stage = start_stage(conversation);
  plan.tool_calls = visible;
  plan.starts_in_tool_calls = visible && conversation.tool_choice == ToolChoice::kRequired &&
                              (options.compat || !conversation.thinking);
  if (plan.starts_in_tool_calls && !options.compat) plan.forced_tool = conversation.forced_tool;
  plan.json = format.format == Conversation::Format::kJsonObject;
  if (visible) {
    for (const ToolDef* tool : conversation.tools) {
      DeclaredTool declared;
      declared.name = tool->name;
      declared.ns = tool->ns;
      declared.local_name = tool->local_name;
      declared.kind = tool->kind;
      declared.strict = tool->strict;
      append_parameters(declared.parameters, *tool, FloatStyle::kPython);
      plan.tools.push_back(std::move(declared));
    }
  }
  ResponsePlan& response = request.response;
  response.compat = options.compat;
  response.thinking = conversation.thinking;
  response.strict_usage_chunk = options.strict_usage_chunk;
  response.logprobs = request.sampling.logprobs;
  response.top_logprobs = request.sampling.top_logprobs;
  response.n = request.sampling.n;
}

core::Result<uint32_t> resolve_max_tokens(const CodecRequest& request, uint64_t n_prompt_tokens,
                                          const CodecOptions& options) {
  const uint64_t limit = options.context_limit;
  const uint64_t asked = request.sampling.max_tokens.value_or(0);
  // 0.2.0 lets one token through when the prompt fills the context exactly.
  const bool no_room = options.compat ? n_prompt_tokens > limit : n_prompt_tokens >= limit;
  if (n_prompt_tokens + asked > limit || no_room) {
    return core::Error{
        core::Code::kContextTooLong,
        fmt::format("This model's maximum context length is {} tokens. However, you requested {} "
                    "tokens ({} in the messages, {} in the completion). Please reduce the length "
                    "of the messages or completion.",
                    limit, n_prompt_tokens + asked, n_prompt_tokens, asked),
        "messages"};
  }
  if (request.sampling.max_tokens) return *request.sampling.max_tokens;
  const Conversation& conversation = request.conversation;
  const uint32_t wanted = !conversation.thinking              ? kPlainTokens
                          : conversation.effort_word == "max" ? kMaxEffortTokens
                                                              : kThinkingTokens;
  const uint64_t left = std::max<uint64_t>(1, limit - n_prompt_tokens);
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, left));
}

void add_text(Message& message, std::string_view text) {
  if (!message.content.empty()) message.content.push_back({"\n\n"});
  message.content.push_back({text});
}

void add_image(Message& message, Conversation& conversation, ImageRef image, Version version) {
  if (!message.content.empty()) message.content.push_back({"\n\n"});
  if (version == Version::kV4) {
    message.content.push_back({kUnsupportedImage});
    return;
  }
  message.content.push_back({{}, static_cast<int32_t>(conversation.images.size())});
  conversation.images.push_back(std::move(image));
}

ImageDetail image_detail(std::string_view word) {
  if (word == "low") return ImageDetail::kLow;
  if (word == "original") return ImageDetail::kOriginal;
  return word == "auto" ? ImageDetail::kAuto : ImageDetail::kHigh;
}

UrlProblem check_image_url(std::string_view url) {
  if (starts_with_any_case(url, "http")) {
    return url.size() > kMaxUrlBytes ? UrlProblem::kTooLong : UrlProblem::kNone;
  }
  if (!starts_with_any_case(url, "data:") || !is_base64_data_url(url)) return UrlProblem::kFormat;
  return starts_with_any_case(url.substr(5), "image/") ? UrlProblem::kNone : UrlProblem::kNotImage;
}

bool mentions_json(std::string_view text) {
  for (size_t i = 1; i + 2 < text.size(); ++i) {
    if ((text[i] | 0x20) == 's' && starts_with_any_case(text.substr(i - 1), "json")) return true;
  }
  return false;
}

}  // namespace hadal::recipe
