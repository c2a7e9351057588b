#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/field_check.h"

// The rules that the dialects share when a request is read.
namespace hadal::recipe {

core::Error invalid(std::string message, std::string param);

core::Status check_model(std::string_view model, Api api, const CodecOptions& options);

// Sampling fields as sent. Names are those of the dialect, for errors.
struct SamplingFields {
  std::optional<double> temperature, top_p, frequency_penalty, presence_penalty;
  std::optional<uint64_t> max_tokens, seed, top_logprobs;
  std::string_view max_tokens_name = "max_tokens";
  bool max_tokens_is_lowered = false;  // Messages lowers a too large one instead of refusing it
};
core::Status check_sampling(SamplingFields& fields, const CodecOptions& options);

// `values`: one string or a list; `name`: the field.
core::Status check_stop(JsonValue values, std::string_view name, const CodecOptions& options,
                        std::vector<std::string>& stop);

// Thinking and effort out of the fields of a dialect, in their order of weight.
struct ThinkingFields {
  std::string_view type;  // enabled, adaptive, disabled, ""
  JsonValue effort;       // a word, or (ours) a number; absent
};
void resolve_thinking(const ThinkingFields& fields, const CodecOptions& options,
                      Conversation& conversation);

// Checks the type of an effort field.
void check_effort(FieldCheck& check, JsonValue object, std::string_view key, const Path& at,
                  const CodecOptions& options);

struct ToolInput {
  std::string_view name;
  std::string_view description;
  bool has_description = false;
  JsonValue parameters;  // absent or null: none
  std::optional<bool> strict;
  bool deferred = false;
  JsonValue raw;
  std::string path;  // of the object that holds the name: tools[0].function
  std::string parameters_name = "parameters";
  std::string_view ns, local_name, ns_description;
  bool has_ns_description = false;
  ToolKind kind = ToolKind::kFunction;
  std::string_view grammar, grammar_syntax;  // custom tools
  std::string_view parameters_text;          // wins over `parameters`
  bool needs_parameters = false;             // absent or null parameters are no schema
};
core::Status check_tool_name(const ToolInput& tool);
struct ToolRules {
  bool has_format = false;  // a response format was given
  bool is_hidden = false;   // tool_choice none: only names are checked
};
// Checks the definitions and adds them to the request.
core::Status add_tools(std::span<const ToolInput> tools, ToolRules rules,
                       const CodecOptions& options, CodecRequest& request);

// 0.2.0 allows strict tools neither beside others nor beside a response format.
core::Status check_strict_mix(ToolRules rules, const CodecOptions& options,
                              const CodecRequest& request);

// tool_choice after reading: a word, or the name of one tool.
struct ToolChoiceFields {
  ToolChoice choice = ToolChoice::kAuto;
  std::string_view name;  // the one tool
  bool has_name = false;
  std::vector<std::string_view> allowed;  // allowed_tools (ours)
  bool has_allowed = false;
  bool some_dropped = false;  // tools were declared that are not among the conversation's
  std::string path = "tool_choice";
};
// A choice is ignored where no tool was declared.
core::Status apply_tool_choice(const ToolChoiceFields& fields, const CodecOptions& options,
                               CodecRequest& request);

struct FormatFields {
  Conversation::Format format = Conversation::Format::kText;
  bool given = false;
  JsonValue schema;
  bool strict = false;
  std::string_view regex;
  std::string schema_path;
  std::string strict_schema;  // set by apply_format
};
core::Status apply_format(FormatFields& fields, const CodecOptions& options, CodecRequest& request);

// Gives every assistant turn its reasoning field, or refuses a missing one.
core::Status settle_reasoning(const CodecOptions& options, std::string_view field_name,
                              bool has_tools, CodecRequest& request);

// Sampling clamps, constraint and parse plan: the last step of every dialect.
void finish_request(const SamplingFields& fields, const FormatFields& format,
                    const CodecOptions& options, CodecRequest& request);

// The JSON Schema of a tool's parameters as it is shown, "{}" if it has none.
void append_parameters(std::string& out, const ToolDef& tool, FloatStyle style);

// Text of a content: adds a part, joined to what stands before by a blank line.
void add_text(Message& message, std::string_view text);
void add_image(Message& message, Conversation& conversation, ImageRef image, Version version);

// The URL of a picture as clients send it: http(s) or a base64 data URL.
inline constexpr std::string_view kUnsupportedImageText =
    "You have uploaded an unsupported image. Please make sure your image is valid and has one of "
    "the "
    "following formats: webp, png, jpeg, and gif.";
ImageDetail image_detail(std::string_view word);  // high if absent
enum class UrlProblem : uint8_t { kNone, kFormat, kTooLong, kNotImage };
UrlProblem check_image_url(std::string_view url);
inline constexpr size_t kMaxUrlBytes = 8192;

// "json" in any case.
bool mentions_json(std::string_view text);

}  // namespace hadal::recipe
