#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/recipe/options.h"

namespace hadal::recipe {

// Where the model's output begins. kAnswer also stands for "thinking is off".
enum class StartStage : uint8_t {
  kAnswer,
  kReasoning,              // the prompt ends in <think>
  kReasoningContinuation,  // ... in <think> and the client's reasoning
  kContentContinuation,    // ... in the client's answer after reasoning
};

// Does the output begin inside a think section?
constexpr bool begins_in_reasoning(StartStage stage) {
  return stage == StartStage::kReasoning || stage == StartStage::kReasoningContinuation;
}

enum class ToolKind : uint8_t {
  kFunction,
  kCustom,      // free text: one string parameter `input`
  kToolSearch,  // Responses: the client searches its tools
  kWebSearch,   // run by the server (server_tools.h)
  kWebFetch,
};

// A tool that the model may call in this request.
struct DeclaredTool {
  std::string name;        // as the model writes it; `ns::name` for one of a namespace
  std::string ns;          // "" if none
  std::string local_name;  // without the namespace
  ToolKind kind = ToolKind::kFunction;
  bool strict = false;
  std::string parameters;  // its JSON Schema as JSON text, "{}" if none was given
};

// A flat name that stands for a namespaced pair: declared, or only seen in the history.
struct NamespacedName {
  std::string name, ns, local_name;
};

// Everything the decoder must know about a request. Owns its strings: outlives the request's text.
struct ParsePlan {
  bool compat = false;  // 0.2.0's parser, faults included
  Version version = Version::kV41;
  bool thinking = true;
  StartStage stage = StartStage::kReasoning;
  bool tool_calls = false;            // a DSML block is a call; else it is text
  bool starts_in_tool_calls = false;  // the prompt ends in an opened block
  // The prompt ends inside `invoke name="X">` of this tool; "" if not. Default mode only.
  std::string forced_tool;
  bool json = false;  // json_object
  std::vector<std::string> stop;
  std::vector<DeclaredTool> tools;  // empty when no tool is visible
  std::vector<NamespacedName> namespaces;
  uint32_t max_calls = 0;  // 1: parallel calls are switched off; 0: no limit
};

// Tools that the server runs in this request, and how often and where it may go.
struct ServerTools {
  bool search = false, fetch = false;
  uint32_t max_uses = 10;                                     // calls in one answer, all together
  std::vector<std::string> allowed_domains, blocked_domains;  // one of them, or none
  bool any() const { return search || fetch; }
};

// Sampling as handed to the engine, after the clamps of the dialect.
struct Sampling {
  std::optional<uint32_t> max_tokens;  // as asked; resolve_max_tokens() gives the effective one
  double temperature = 1.0;
  double top_p = 1.0;
  double min_p = 0.0;
  int32_t top_k = 0;  // 0: off
  double frequency_penalty = 0.0, presence_penalty = 0.0, repetition_penalty = 1.0;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;
  bool logprobs = false;
  std::optional<uint32_t> top_logprobs;
  uint32_t n = 1;
  std::optional<uint32_t> thinking_budget;  // cap on reasoning tokens
};

// What the output must match, in the form that 0.2.0 hands to a backend.
struct OutputConstraint {
  enum class Kind : uint8_t { kNone, kJson, kRegex, kToolCall, kToolCallRequired, kGrammar };
  Kind kind = Kind::kNone;
  // kJson: "" for any object, else the schema. kRegex: the expression. kToolCall*: JSON list of
  // tools in Chat form. kGrammar (ours): an EBNF (Lark) text.
  std::string text;
  std::string path;  // of the field that asks for it, for errors
};

// The fields that a Responses object repeats from its request, as JSON text ready to be written.
struct ResponsesEcho {
  std::string instructions = "null", max_output_tokens = "null", reasoning = "null",
              temperature = "null", text = "null", tool_choice = "null", tools = "[]",
              top_logprobs = "null", top_p = "null", user = "null", metadata = "{}",
              parallel_tool_calls = "true", previous_response_id = "null", conversation = "null",
              truncation = "\"disabled\"", max_tool_calls = "null", prompt_cache_key = "null",
              safety_identifier = "null", service_tier = "\"default\"", store = "false",
              background = "false";
};

// What the response writers need besides the ParsePlan.
struct ResponsePlan {
  Api api = Api::kChat;
  bool compat = false;
  std::string model;  // as the client spelt it
  bool stream = false;
  bool include_usage = false;       // Chat: stream_options.include_usage
  bool strict_usage_chunk = false;  // CodecOptions
  bool thinking = true;
  bool logprobs = false;
  std::optional<uint32_t> top_logprobs;
  uint32_t n = 1;
  bool echo_prompt = false;          // Completions: `echo`
  std::string prompt_text;           // Completions with echo
  bool encrypted_reasoning = false;  // Responses: include reasoning.encrypted_content
  bool omit_thinking_text = false;   // Messages: thinking.display is "omitted"
  bool store = false;                // Responses: keep it for previous_response_id
  bool background = false;
  std::string previous_response_id, conversation;  // Responses
  std::shared_ptr<const ResponsesEcho>
      echo;  // Responses; null: all defaults. Shared by plan's copies
};

// The `hadal` object of a body (docs/architecture.md 3.4): tests, debugging, benchmarks.
struct Extension {
  bool return_token_ids = false;
  bool prefix_cache = true;
  std::optional<uint32_t> draft;
  std::string accept;
  bool deterministic = false, ignore_eos = false, timings = false, event_times = false;
  uint32_t min_tokens = 0;
  struct Script {
    std::string text;
    uint32_t step = 1;
    std::string finish = "stop";
    uint32_t pace_ms = 0;
  };
  std::optional<Script> script;
};

}  // namespace hadal::recipe
