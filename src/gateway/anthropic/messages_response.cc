#include "gateway/anthropic/messages_response.h"

#include <algorithm>

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
    case Finish::kPause:
      return "pause_turn";
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
  if (usage.web_searches + usage.web_fetches > 0) {
    out.append(R"(,"server_tool_use":{"web_search_requests":)");
    append_number(out, usage.web_searches);
    out.append(R"(,"web_fetch_requests":)");
    append_number(out, usage.web_fetches);
    out.push_back('}');
  }
  out.append(R"(,"service_tier":"standard"})");
}

// What a server tool gave, as the block that follows its call. A client sends it back as it is, so
// the text travels in encrypted_content; it is no secret.
std::string result_block(std::string_view id, const ServerToolResult& result) {
  const bool search = result.kind == ToolKind::kWebSearch;
  const std::string_view type = search ? "web_search" : "web_fetch";
  std::string out = R"({"type":")";
  out.append(type).append(R"(_tool_result","tool_use_id":")").append(id).append(R"(","content":)");
  if (!result.error.empty()) {
    out.append(R"({"type":")").append(type).append(R"(_tool_result_error","error_code":)");
    append_quoted(out, result.error);
    return out.append("}}");
  }
  if (search) out.push_back('[');
  bool first = true;
  for (const WebResult& page : result.results) {
    if (!first) out.push_back(',');
    first = false;
    if (search) {
      out.append(R"({"type":"web_search_result","url":)");
      append_quoted(out, page.url);
      out.append(R"(,"title":)");
      append_quoted(out, page.title);
      out.append(R"(,"encrypted_content":)");
      append_quoted(out, page.text);
      out.append(R"(,"page_age":)");
      append_quoted_or_null(out, page.age);
    } else {
      out.append(R"({"type":"web_fetch_result","url":)");
      append_quoted(out, page.url);
      out.append(
          R"(,"content":{"type":"document","source":{"type":"text","media_type":"text/plain","data":)");
      append_quoted(out, page.text);
      out.append(R"(},"title":)");
      append_quoted_or_null(out, page.title);
      out.append(R"(},"retrieved_at":null)");
    }
    out.push_back('}');
  }
  if (search) out.push_back(']');
  return out.append("}");
}

void append_stop(std::string& out, const ChoiceEnd& end) {
  out.append(R"("stop_reason":")").append(stop_reason(end.finish));
  out.append(R"(","stop_sequence":)");
  append_quoted_or_null(out, end.stop_sequence);
}

// What both forms know: names, and the signature of a thinking block.
class MessagesBase : public ResponseWriter {
 public:
  MessagesBase(const ParsePlan& parse, ResponsePlan plan, ResponseIdentity identity)
      : plan_(std::move(plan)), identity_(std::move(identity)), ids_(identity_.seed) {
    for (const DeclaredTool& tool : parse.tools) {
      if (is_server_tool(tool.kind)) server_tools_.push_back(tool.name);
    }
  }
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

  // The type of a call's block; gives it its id.
  std::string_view open_call(std::string_view name, std::string& id) {
    id = ids_.next(n_calls_++);
    if (std::find(server_tools_.begin(), server_tools_.end(), name) == server_tools_.end()) {
      return "tool_use";
    }
    id.replace(0, sizeof("call") - 1, "srvtoolu");
    server_ids_.push_back(id);
    return "server_tool_use";
  }

  const ResponsePlan plan_;
  const ResponseIdentity identity_;
  std::vector<std::string> server_ids_;  // of calls of server tools, in order

 private:
  std::vector<std::string> server_tools_;
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
    std::string id;
    std::string block = R"({"type":")";
    block.append(open_call(name, id));
    block.append(R"(","id":")").append(id).append(R"(","name":)");
    append_quoted(block, name);
    block.append(R"(,"input":{}})");
    open(Block::kTool, block, out);
  }

  void arguments(uint32_t, std::string_view json, std::string& out) override { delta(json, out); }

  void server_result(uint32_t, size_t index, const ServerToolResult& result,
                     std::string& out) override {
    open(Block::kResult, result_block(server_ids_[index], result), out);
  }

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
  enum class Block : uint8_t { kNone, kThinking, kText, kTool, kResult };

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
      reasoning_.clear();
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
    CallRecord& made = at_.calls.emplace_back();
    made.name = name;
    types_.emplace_back(open_call(name, made.id));
  }
  void arguments(uint32_t, std::string_view json, std::string&) override {
    at_.calls.back().arguments.append(json);
  }
  void fail(const core::Error&, std::string&) override {}
  // A round is over: its blocks are final, and the next one begins anew.
  void server_result(uint32_t, size_t index, const ServerToolResult& result,
                     std::string&) override {
    finish_round();
    blocks_.append(result_block(server_ids_[index], result)).push_back(',');
  }

  void end_choice(uint32_t, const ChoiceEnd& end, const Usage& usage, bool,
                  std::string& out) override {
    finish_round();
    append_head(out);
    out.append(blocks_);
    if (!blocks_.empty()) out.pop_back();
    out.append("],");
    append_stop(out, end);
    out.append(R"(,"usage":)");
    append_usage(out, usage);
    if (!end.extension.empty()) out.append(R"(,"hadal":)").append(end.extension);
    out.push_back('}');
  }

 private:
  void finish_round() {
    const bool empty = at_.reasoning.empty() && at_.content.empty() && at_.calls.empty();
    if (!blocks_.empty() && empty) return;
    if ((plan_.thinking && blocks_.empty()) || !at_.reasoning.empty()) {
      blocks_.append(R"({"type":"thinking","thinking":)");
      append_quoted(blocks_,
                    plan_.omit_thinking_text && !plan_.compat ? std::string_view() : at_.reasoning);
      blocks_.append(R"(,"signature":)");
      append_quoted(blocks_, signature(at_.reasoning));
      blocks_.append("},");
    }
    if (!at_.content.empty()) {
      blocks_.append(R"({"type":"text","text":)");
      append_quoted(blocks_, at_.content);
      blocks_.append("},");
    }
    for (size_t i = 0; i < at_.calls.size(); ++i) {
      const CallRecord& call = at_.calls[i];
      blocks_.append(R"({"type":")").append(types_[i]);
      blocks_.append(R"(","id":")").append(call.id).append(R"(","name":)");
      append_quoted(blocks_, call.name);
      blocks_.append(R"(,"input":)");
      append_object(blocks_, call.arguments);
      blocks_.append("},");
    }
    at_ = {};
    types_.clear();
  }

  Transcript at_;                        // of the round in progress
  std::vector<std::string_view> types_;  // of its calls
  std::string blocks_;                   // finished ones, each with a comma behind it
};

}  // namespace

std::unique_ptr<ResponseWriter> make_messages_writer(const ParsePlan& parse, ResponsePlan plan,
                                                     const Vocabulary&, ResponseIdentity identity) {
  if (plan.stream) {
    return std::make_unique<MessagesStream>(parse, std::move(plan), std::move(identity));
  }
  return std::make_unique<MessagesBody>(parse, std::move(plan), std::move(identity));
}

}  // namespace hadal::anthropic
