#include "gateway/openai/responses_response.h"

#include <algorithm>

#include "gateway/openai/responses_object.h"
#include "gateway/recipe/custom_input.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/sealed_text.h"

namespace hadal::openai {
namespace {

using namespace recipe;  // NOLINT(google-build-using-namespace): the words of this file

// Items in the order they come; one is open at a time. Streamed and whole answers differ only in
// whether events are written.
class ResponsesWriter final : public ResponseWriter {
 public:
  ResponsesWriter(const ParsePlan& parse, ResponsePlan plan, const Vocabulary& vocabulary,
                  ResponseIdentity identity)
      : tools_(parse.tools),
        namespaces_(parse.namespaces),
        plan_(std::move(plan)),
        vocabulary_(vocabulary),
        identity_(std::move(identity)),
        ids_(identity_.seed) {}

  void begin(const Usage&, std::string& out) override {
    if (!plan_.stream) return;
    for (const std::string_view type : {"response.created", "response.in_progress"}) {
      begin_event(type, out);
      out.append(R"(,"response":)");
      append_responses_object(out, plan_, identity_, {.status = "in_progress"});
      end_event(out);
    }
  }

  void reasoning(uint32_t, std::string_view text, Logprobs, std::string& out) override {
    if (text.empty()) return;
    if (kind_ != Kind::kReasoning) open(Kind::kReasoning, "rs_", out);
    text_.append(text);
    delta(text, out);
  }

  void content(uint32_t, std::string_view text, Logprobs tokens, std::string& out) override {
    if (text.empty()) return;
    if (kind_ != Kind::kMessage) open(Kind::kMessage, "msg_", out);
    text_.append(text);
    if (tokens.empty()) {
      delta(text, out);
      return;
    }
    std::string list;
    append_logprobs(list, tokens, vocabulary_);
    if (!logprobs_.empty()) logprobs_.push_back(',');
    logprobs_.append(list);
    delta(text, out, list);
  }

  void call(uint32_t, std::string_view name, std::string& out) override {
    const auto tool = std::find_if(tools_.begin(), tools_.end(),
                                   [&](const DeclaredTool& one) { return one.name == name; });
    const ToolKind tool_kind = tool == tools_.end() ? ToolKind::kFunction : tool->kind;
    const auto flat = std::find_if(namespaces_.begin(), namespaces_.end(),
                                   [&](const NamespacedName& one) { return one.name == name; });
    close(Close::kCallFollows, out);
    call_id_ = ids_.next(n_calls_++);
    name_ = flat == namespaces_.end() ? name : std::string_view(flat->local_name);
    namespace_ = flat == namespaces_.end() ? "" : flat->ns;
    input_ = {};
    switch (tool_kind) {
      case ToolKind::kFunction:
        open(Kind::kFunction, "fc_", out);
        break;
      case ToolKind::kCustom:
        open(Kind::kCustom, "ctc_", out);
        break;
      case ToolKind::kToolSearch:
        open(Kind::kSearch, "tsc_", out);
        break;
      case ToolKind::kWebSearch:
      case ToolKind::kWebFetch:
        open(Kind::kWebSearch, "ws_", out);
        web_event("in_progress", out);
        break;
    }
  }

  void arguments(uint32_t, std::string_view json, std::string& out) override {
    const size_t before = text_.size();
    if (kind_ == Kind::kCustom) {
      input_.feed(json, text_);
    } else {
      text_.append(json);
    }
    if (kind_ != Kind::kSearch && kind_ != Kind::kWebSearch && text_.size() > before) {
      delta(std::string_view(text_).substr(before), out);
    }
  }

  // 0.2.0 leaves a finished call open until something follows it.
  void call_end(uint32_t, bool complete, std::string& out) override {
    if (kind_ == Kind::kWebSearch && complete) {  // done when its result is there
      web_event("searching", out);
      searches_.push_back({n_items_ - 1, item_id_, std::move(text_)});
      kind_ = Kind::kNone;
      return;
    }
    if (!plan_.compat && complete) close(Close::kCallFollows, out);
  }

  void server_result(uint32_t, size_t index, const ServerToolResult& result,
                     std::string& out) override {
    close(Close::kCallFollows, out);
    Search& search = searches_[index];
    item_id_ = search.item_id;
    text_ = std::move(search.arguments);
    item_index_ = search.index;
    kind_ = Kind::kWebSearch;
    if (result.error.empty()) web_event("completed", out);
    close(result.error.empty() ? Close::kCallFollows : Close::kFailed, out);
    item_index_ = n_items_ - 1;
  }

  void end_choice(uint32_t, const ChoiceEnd& end, const Usage& usage, bool,
                  std::string& out) override {
    ResponsesState state{.status = "completed", .completed_at = now()};
    if (end.finish == Finish::kLength) state.incomplete_reason = "max_output_tokens";
    if (end.finish == Finish::kContentFilter) state.incomplete_reason = "content_filter";
    const bool incomplete = !state.incomplete_reason.empty();
    if (incomplete) state.status = "incomplete";
    close(incomplete ? Close::kCut : Close::kEnd, out);
    const std::string output = joined_output();
    state.output = output;
    state.usage = &usage;
    state.extension = end.extension;
    final_.clear();
    append_responses_object(final_, plan_, identity_, state);
    if (!plan_.stream) {
      out.append(final_);
      return;
    }
    begin_event(incomplete ? "response.incomplete" : "response.completed", out);
    out.append(R"(,"response":)").append(final_);
    end_event(out);
  }

  // Also after the end, in place of the closing event, if that was not sent.
  void fail(const core::Error& error, std::string& out) override {
    close(Close::kCut, out);
    if (!final_.empty() && plan_.stream) --n_events_;
    std::string json = R"({"code":)";
    append_quoted(json, http_status(error.code) >= 500 ? "server_error" : "invalid_prompt");
    json.append(R"(,"message":)");
    append_quoted(json, error.message);
    json.push_back('}');
    final_.clear();
    const std::string output = joined_output();
    const bool cancelled = error.code == core::Code::kCancelled;
    append_responses_object(final_, plan_, identity_,
                            {.status = cancelled ? "cancelled" : "failed",
                             .error = cancelled ? std::string_view("null") : json,
                             .output = output});
    if (!plan_.stream) return;
    begin_event("response.failed", out);
    out.append(R"(,"response":)").append(final_);
    end_event(out);
  }

  std::string final_object() const override { return final_; }

 private:
  enum class Kind : uint8_t {
    kNone,
    kReasoning,
    kMessage,
    kFunction,
    kCustom,
    kSearch,
    kWebSearch
  };
  enum class Close : uint8_t { kCallFollows, kEnd, kCut, kFailed };
  // A search that the server runs, until its result is there.
  struct Search {
    uint32_t index = 0;
    std::string item_id, arguments;
  };

  std::string joined_output() const {
    std::string out;
    for (const std::string& item : output_) {
      if (item.empty()) continue;  // a search that was cut
      if (!out.empty()) out.push_back(',');
      out.append(item);
    }
    return out;
  }

  void web_event(std::string_view state, std::string& out) {
    if (!plan_.stream) return;
    begin_event("response.web_search_call." + std::string(state), out);
    append_place(out);
    end_event(out);
  }

  int64_t now() const { return identity_.now ? identity_.now() : identity_.created; }

  void begin_event(std::string_view type, std::string& out) const {
    out.append("event: ").append(type).append("\ndata: {\"type\":\"").append(type).push_back('"');
  }
  void end_event(std::string& out) {
    out.append(R"(,"sequence_number":)");
    append_number(out, n_events_++);
    out.append("}\n\n");
  }
  void append_place(std::string& out) const {
    out.append(R"(,"item_id":")").append(item_id_).append(R"(","output_index":)");
    append_number(out, item_index_);
  }

  static std::string_view delta_type(Kind kind) {
    switch (kind) {
      case Kind::kReasoning:
        return "response.reasoning_text.delta";
      case Kind::kMessage:
        return "response.output_text.delta";
      case Kind::kCustom:
        return "response.custom_tool_call_input.delta";
      default:
        return "response.function_call_arguments.delta";
    }
  }

  void open(Kind kind, std::string_view prefix, std::string& out) {
    close(Close::kEnd, out);
    kind_ = kind;
    text_.clear();
    logprobs_.clear();
    std::string id;
    append_escaped(id, identity_.id);
    item_id_.assign(prefix).append(id).push_back('_');
    append_number(item_id_, n_items_);
    encrypted_ = "null";
    if (plan_.compat) {
      encrypted_ = "\"" + id + "-";
      append_number(encrypted_, n_items_);
      encrypted_.push_back('"');
    }
    item_index_ = n_items_++;
    output_.emplace_back();
    if (!plan_.stream) return;
    begin_event("response.output_item.added", out);
    out.append(R"(,"item":)");
    append_item(out, "in_progress", "final_answer", false);
    out.append(R"(,"output_index":)");
    append_number(out, item_index_);
    end_event(out);
    if (kind == Kind::kReasoning || kind == Kind::kMessage) {
      begin_event("response.content_part.added", out);
      out.append(R"(,"content_index":0)");
      append_place(out);
      out.append(R"(,"part":)");
      append_part(out, false);
      end_event(out);
    }
    delta_head_.clear();
    begin_event(delta_type(kind), delta_head_);
    if (kind == Kind::kReasoning || kind == Kind::kMessage)
      delta_head_.append(R"(,"content_index":0)");
    append_place(delta_head_);
    delta_head_.append(R"(,"delta":")");
  }

  void delta(std::string_view text, std::string& out, std::string_view logprobs = {}) {
    if (!plan_.stream) return;
    out.append(delta_head_);
    append_escaped(out, text);
    out.push_back('"');
    if (kind_ == Kind::kMessage) out.append(R"(,"logprobs":[)").append(logprobs).push_back(']');
    end_event(out);
  }

  void close(Close why, std::string& out) {
    if (kind_ == Kind::kNone) return;
    if (kind_ == Kind::kCustom) {
      const size_t before = text_.size();
      input_.finish(text_);
      if (text_.size() > before) delta(std::string_view(text_).substr(before), out);
    }
    const std::string_view status = why == Close::kCut      ? "incomplete"
                                    : why == Close::kFailed ? "failed"
                                                            : "completed";
    const std::string_view phase = why == Close::kCallFollows ? "commentary" : "final_answer";
    if (kind_ == Kind::kReasoning && !plan_.compat && plan_.encrypted_reasoning &&
        !identity_.reasoning_key.empty()) {
      encrypted_.clear();
      append_quoted(encrypted_, seal_text(identity_.reasoning_key, kReasoningPurpose, text_));
    }
    if (plan_.stream) write_done_events(out);
    append_item(output_[item_index_], status, phase, true);
    if (plan_.stream) {
      begin_event("response.output_item.done", out);
      out.append(R"(,"item":)").append(output_[item_index_]);
      out.append(R"(,"output_index":)");
      append_number(out, item_index_);
      end_event(out);
    }
    kind_ = Kind::kNone;
  }

  void write_done_events(std::string& out) {
    if (kind_ == Kind::kReasoning || kind_ == Kind::kMessage) {
      begin_event(
          kind_ == Kind::kReasoning ? "response.reasoning_text.done" : "response.output_text.done",
          out);
      out.append(R"(,"content_index":0)");
      append_place(out);
      if (kind_ == Kind::kMessage) out.append(R"(,"logprobs":[)").append(logprobs_).push_back(']');
      out.append(R"(,"text":)");
      append_quoted(out, text_);
      end_event(out);
      begin_event("response.content_part.done", out);
      out.append(R"(,"content_index":0)");
      append_place(out);
      out.append(R"(,"part":)");
      append_part(out, true);
      end_event(out);
    } else if (kind_ != Kind::kSearch && kind_ != Kind::kWebSearch) {
      begin_event(kind_ == Kind::kCustom ? "response.custom_tool_call_input.done"
                                         : "response.function_call_arguments.done",
                  out);
      append_place(out);
      out.append(kind_ == Kind::kCustom ? R"(,"input":)" : R"(,"arguments":)");
      append_quoted(out, text_);
      if (kind_ == Kind::kFunction && !plan_.compat) {
        out.append(R"(,"name":)");
        append_quoted(out, name_);
      }
      end_event(out);
    }
  }

  void append_part(std::string& out, bool done) const {
    if (kind_ == Kind::kReasoning) {
      out.append(R"({"type":"reasoning_text","text":)");
    } else {
      out.append(R"({"type":"output_text","annotations":[],"logprobs":[)");
      if (done) out.append(logprobs_);
      out.append(R"(],"text":)");
    }
    append_quoted(out, done ? std::string_view(text_) : std::string_view());
    out.push_back('}');
  }

  void append_item(std::string& out, std::string_view status, std::string_view phase,
                   bool done) const {
    const std::string_view text = done ? std::string_view(text_) : std::string_view();
    auto head = [&](std::string_view type) {
      out.append(R"({"type":")").append(type).append(R"(","id":")").append(item_id_);
      out.append(R"(","status":")").append(status).push_back('"');
    };
    switch (kind_) {
      case Kind::kNone:
        return;
      case Kind::kReasoning:
        head("reasoning");
        out.append(R"(,"content":[)");
        if (done) append_part(out, true);
        out.append(R"(],"summary":[],"encrypted_content":)").append(encrypted_);
        break;
      case Kind::kMessage:
        head("message");
        out.append(R"(,"role":"assistant","phase":")").append(phase).append(R"(","content":[)");
        if (done) append_part(out, true);
        out.push_back(']');
        break;
      case Kind::kFunction:
      case Kind::kCustom:
        head(kind_ == Kind::kFunction ? "function_call" : "custom_tool_call");
        out.append(R"(,"call_id":")").append(call_id_).append(R"(","name":)");
        append_quoted(out, name_);
        if (!namespace_.empty()) {
          out.append(R"(,"namespace":)");
          append_quoted(out, namespace_);
        }
        out.append(kind_ == Kind::kFunction ? R"(,"arguments":)" : R"(,"input":)");
        append_quoted(out, text);
        break;
      case Kind::kSearch:
        head("tool_search_call");
        out.append(R"(,"call_id":")").append(call_id_);
        out.append(R"(","execution":"client","arguments":)");
        append_object(out, text);
        break;
      case Kind::kWebSearch: {
        head("web_search_call");
        JsonDoc arguments;
        const bool read = arguments.parse(text).has_value();
        out.append(R"(,"action":{"type":"search","query":)");
        append_quoted(out, read ? arguments.root()["query"].str() : std::string_view());
        out.push_back('}');
        break;
      }
    }
    out.push_back('}');
  }

  const std::vector<DeclaredTool> tools_;
  const std::vector<NamespacedName> namespaces_;
  const ResponsePlan plan_;
  const Vocabulary& vocabulary_;
  const ResponseIdentity identity_;
  CallIds ids_;
  uint32_t n_events_ = 0, n_items_ = 0;
  size_t n_calls_ = 0;
  uint32_t item_index_ = 0;          // of the open item
  std::vector<std::string> output_;  // items; "" while one is open
  std::vector<Search> searches_;     // all of them, in order
  std::string final_;

  // The open item.
  Kind kind_ = Kind::kNone;
  std::string item_id_, text_, logprobs_, delta_head_, encrypted_;
  std::string call_id_, name_, namespace_;
  CustomInput input_;
};

}  // namespace

std::unique_ptr<ResponseWriter> make_responses_writer(const ParsePlan& parse, ResponsePlan plan,
                                                      const Vocabulary& vocabulary,
                                                      ResponseIdentity identity) {
  return std::make_unique<ResponsesWriter>(parse, std::move(plan), vocabulary, std::move(identity));
}

}  // namespace hadal::openai
