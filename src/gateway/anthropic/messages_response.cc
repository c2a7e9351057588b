#include "gateway/anthropic/messages_response.h"

#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/sealed_text.h"

namespace hadal::anthropic {
namespace {

using namespace recipe;  // NOLINT(google-build-using-namespace): the words of this file

std::string_view stop_reason(Finish finish) {
  switch (finish) {
    case Finish::kStopSequence:
      return "stop_sequence";
    case Finish::kToolCalls:
      return "tool_use";
    case Finish::kLength:
      return "max_tokens";
    case Finish::kContentFilter:
      return "refusal";
    case Finish::kStop:
    case Finish::kEndOfStream:
      return "end_turn";
  }
  return "end_turn";
}

void append_usage(std::string& out, const Usage& usage) {
  out.append(R"({"input_tokens":)");
  append_number(out, usage.prompt_tokens - usage.cached_tokens);
  out.append(R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)");
  append_number(out, usage.cached_tokens);
  out.append(R"(,"output_tokens":)");
  append_number(out, usage.completion_tokens);
  out.append(R"(,"service_tier":"standard"})");
}

void append_stop(std::string& out, const ChoiceEnd& end) {
  out.append(R"("stop_reason":")").append(stop_reason(end.finish));
  out.append(R"(","stop_sequence":)");
  append_quoted_or_null(out, end.stop_sequence);
}

// What both forms know: names, and the signature of a thinking block.
class MessagesBase : public ResponseWriter {
 public:
  MessagesBase(ResponsePlan plan, ResponseIdentity identity)
      : plan_(std::move(plan)), identity_(std::move(identity)), ids_(identity_.seed) {}
  void call_end(uint32_t, bool, std::string&) override {}

 protected:
  bool seals() const { return !plan_.compat && !identity_.reasoning_key.empty(); }
  // Sealed reasoning survives a client that shows or sends back no thinking text.
  std::string signature(std::string_view reasoning) const {
    if (!seals()) return identity_.id;
    return seal_text(identity_.reasoning_key, kReasoningPurpose, reasoning);
  }
  void append_head(std::string& out) const {
    out.append(R"({"id":)");
    append_quoted(out, identity_.id);
    out.append(R"(,"type":"message","role":"assistant","model":)");
    append_quoted(out, plan_.model);
    out.append(R"(,"content":[)");
  }

  const ResponsePlan plan_;
  const ResponseIdentity identity_;
  CallIds ids_;
  size_t n_calls_ = 0;
};

class MessagesStream final : public MessagesBase {
 public:
  using MessagesBase::MessagesBase;

  void begin(const Usage& prompt, std::string& out) override {
    out.append("event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    append_head(out);
    out.append(R"(],"stop_reason":null,"stop_sequence":null,"usage":)");
    append_usage(out, prompt);
    out.append("}}\n\n");
    if (plan_.thinking)
      open(Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})", out);
  }

  void reasoning(uint32_t, std::string_view text, Logprobs, std::string& out) override {
    if (seals()) reasoning_.append(text);
    if (plan_.omit_thinking_text && !plan_.compat) return;
    if (text.empty()) return;
    if (block_ != Block::kThinking) {
      open(Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})", out);
    }
    delta(text, out);
  }

  void content(uint32_t, std::string_view text, Logprobs, std::string& out) override {
    if (text.empty()) return;
    if (block_ != Block::kText) open(Block::kText, R"({"type":"text","text":""})", out);
    delta(text, out);
  }

  void call(uint32_t, std::string_view name, std::string& out) override {
    std::string block = R"({"type":"tool_use","id":")" + ids_.next(n_calls_++) + R"(","name":)";
    append_quoted(block, name);
    block.append(R"(,"input":{}})");
    open(Block::kTool, block, out);
  }

  void arguments(uint32_t, std::string_view json, std::string& out) override { delta(json, out); }

  void end_choice(uint32_t, const ChoiceEnd& end, const Usage& usage, bool,
                  std::string& out) override {
    close(out);
    out.append("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    append_stop(out, end);
    out.append(R"(},"usage":)");
    append_usage(out, usage);
    if (!end.extension.empty()) out.append(R"(,"hadal":)").append(end.extension);
    out.append("}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
  }

  void fail(const core::Error& error, std::string& out) override {
    out.append("event: error\ndata: ");
    out.append(error_body(error, Api::kMessages, plan_.compat)).append("\n\n");
  }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kTool };

  void append_event(std::string_view type, std::string& out) const {
    out.append("event: ").append(type).append("\ndata: {\"type\":\"").append(type);
    out.append(R"(","index":)");
    append_number(out, n_blocks_ - 1);
  }

  void open(Block block, std::string_view content_block, std::string& out) {
    close(out);
    block_ = block;
    ++n_blocks_;
    append_event("content_block_start", out);
    out.append(R"(,"content_block":)").append(content_block).append("}\n\n");
    if (n_blocks_ == 1) out.append("event: ping\ndata: {\"type\":\"ping\"}\n\n");
    delta_head_.clear();
    append_event("content_block_delta", delta_head_);
    switch (block) {
      case Block::kThinking:
        delta_head_.append(R"(,"delta":{"type":"thinking_delta","thinking":")");
        break;
      case Block::kText:
        delta_head_.append(R"(,"delta":{"type":"text_delta","text":")");
        break;
      default:
        delta_head_.append(R"(,"delta":{"type":"input_json_delta","partial_json":")");
        break;
    }
  }

  void delta(std::string_view text, std::string& out) {
    out.append(delta_head_);
    append_escaped(out, text);
    out.append("\"}}\n\n");
  }

  void close(std::string& out) {
    if (block_ == Block::kThinking) {
      append_event("content_block_delta", out);
      out.append(R"(,"delta":{"type":"signature_delta","signature":)");
      append_quoted(out, signature(reasoning_));
      out.append("}}\n\n");
    }
    if (block_ != Block::kNone) {
      append_event("content_block_stop", out);
      out.append("}\n\n");
    }
    block_ = Block::kNone;
  }

  Block block_ = Block::kNone;
  uint32_t n_blocks_ = 0;
  std::string delta_head_;  // of the open block, up to the text
  std::string reasoning_;   // only when it will be sealed
};

class MessagesBody final : public MessagesBase {
 public:
  using MessagesBase::MessagesBase;

  void begin(const Usage&, std::string&) override {}
  void reasoning(uint32_t, std::string_view text, Logprobs, std::string&) override {
    at_.reasoning.append(text);
  }
  void content(uint32_t, std::string_view text, Logprobs, std::string&) override {
    at_.content.append(text);
  }
  void call(uint32_t, std::string_view name, std::string&) override {
    at_.calls.push_back({ids_.next(n_calls_++), std::string(name), {}});
  }
  void arguments(uint32_t, std::string_view json, std::string&) override {
    at_.calls.back().arguments.append(json);
  }
  void fail(const core::Error&, std::string&) override {}

  void end_choice(uint32_t, const ChoiceEnd& end, const Usage& usage, bool,
                  std::string& out) override {
    append_head(out);
    const size_t begin = out.size();
    if (plan_.thinking || !at_.reasoning.empty()) {
      out.append(R"({"type":"thinking","thinking":)");
      append_quoted(out,
                    plan_.omit_thinking_text && !plan_.compat ? std::string_view() : at_.reasoning);
      out.append(R"(,"signature":)");
      append_quoted(out, signature(at_.reasoning));
      out.append("},");
    }
    if (!at_.content.empty()) {
      out.append(R"({"type":"text","text":)");
      append_quoted(out, at_.content);
      out.append("},");
    }
    for (const CallRecord& call : at_.calls) {
      out.append(R"({"type":"tool_use","id":")").append(call.id).append(R"(","name":)");
      append_quoted(out, call.name);
      out.append(R"(,"input":)").append(object_or_empty(call.arguments)).append("},");
    }
    if (out.size() > begin) out.pop_back();
    out.append("],");
    append_stop(out, end);
    out.append(R"(,"usage":)");
    append_usage(out, usage);
    if (!end.extension.empty()) out.append(R"(,"hadal":)").append(end.extension);
    out.push_back('}');
  }

 private:
  Transcript at_;
};

}  // namespace

std::unique_ptr<ResponseWriter> make_messages_writer(const ParsePlan&, ResponsePlan plan,
                                                     const Vocabulary&, ResponseIdentity identity) {
  if (plan.stream) return std::make_unique<MessagesStream>(std::move(plan), std::move(identity));
  return std::make_unique<MessagesBody>(std::move(plan), std::move(identity));
}

}  // namespace hadal::anthropic
