#include "gateway/openai/chat_response.h"

#include "gateway/openai/usage_json.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_writer.h"

namespace hadal::openai {
namespace {

using namespace recipe;  // NOLINT(google-build-using-namespace): the words of this file

// {"id":...,"object":OBJECT,"created":...,"model":..., the same in every frame.
std::string frame_head(const ResponsePlan& plan, const ResponseIdentity& identity,
                       std::string_view object) {
  std::string head = R"({"id":)";
  append_quoted(head, identity.id);
  head.append(R"(,"object":")").append(object).append(R"(","created":)");
  append_number(head, identity.created);
  head.append(R"(,"model":)");
  append_quoted(head, plan.model);
  return head;
}

// One chunk a delta. Frames are assembled from parts made once, so that a token costs two copies
// and its escapes.
class ChatStream final : public ResponseWriter {
 public:
  ChatStream(const ParsePlan& parse, ResponsePlan plan, const Vocabulary& vocabulary,
             const ResponseIdentity& identity)
      : plan_(std::move(plan)),
        continues_answer_(parse.stage == StartStage::kContentContinuation),
        vocabulary_(vocabulary),
        ids_(identity.seed),
        n_calls_(plan_.n, 0) {
    head_ = "data: " + frame_head(plan_, identity, "chat.completion.chunk");
    head_.append(R"(,"system_fingerprint":)");
    append_quoted_or_null(head_, identity.fingerprint);
    head_.append(R"(,"choices":[)");
    for (uint32_t i = 0; i < plan_.n; ++i) {
      std::string delta = head_ + R"({"index":)";
      append_number(delta, i);
      delta.append(R"(,"delta":{)");
      deltas_.push_back(std::move(delta));
    }
    const bool null_usage = !plan_.strict_usage_chunk || plan_.include_usage;
    usage_tail_ = null_usage ? R"(,"usage":null})" : "}";
    usage_tail_.append("\n\n");
    tail_ = R"(},"logprobs":null,"finish_reason":null}])" + usage_tail_;
  }

  void begin(const Usage&, std::string& out) override {
    for (uint32_t i = 0; i < plan_.n; ++i) {
      out.append(deltas_[i]);
      if (!plan_.thinking) {
        out.append(R"("role":"assistant","content":"")");
      } else if (continues_answer_) {
        out.append(R"("role":"assistant","content":"","reasoning_content":null)");
      } else {
        out.append(R"("role":"assistant","content":null,"reasoning_content":"")");
      }
      out.append(tail_);
    }
  }

  void reasoning(uint32_t choice, std::string_view text, Logprobs tokens,
                 std::string& out) override {
    out.append(deltas_[choice]).append(R"("content":null,"reasoning_content":")");
    append_escaped(out, text);
    out.push_back('"');
    end_text(tokens, "reasoning_content", out);
  }

  void content(uint32_t choice, std::string_view text, Logprobs tokens, std::string& out) override {
    out.append(deltas_[choice]).append(R"("content":")");
    append_escaped(out, text);
    out.append(plan_.thinking ? R"(","reasoning_content":null)" : "\"");
    end_text(tokens, "content", out);
  }

  void call(uint32_t choice, std::string_view name, std::string& out) override {
    const uint32_t index = n_calls_[choice]++;
    out.append(deltas_[choice]).append(R"("tool_calls":[{"index":)");
    append_number(out, index);
    out.append(R"(,"id":")").append(ids_.next(index));
    out.append(R"(","type":"function","function":{"name":)");
    append_quoted(out, name);
    out.append(R"(,"arguments":""}}])").append(tail_);
  }

  void arguments(uint32_t choice, std::string_view json, std::string& out) override {
    out.append(deltas_[choice]).append(R"("tool_calls":[{"index":)");
    append_number(out, n_calls_[choice] - 1);
    out.append(R"(,"function":{"arguments":")");
    append_escaped(out, json);
    out.append(R"("}}])").append(tail_);
  }

  void call_end(uint32_t, bool, std::string&) override {}

  void end_choice(uint32_t choice, const ChoiceEnd& end, const Usage& usage, bool last,
                  std::string& out) override {
    out.append(deltas_[choice]).append(R"("content":"")");
    if (plan_.thinking) out.append(R"(,"reasoning_content":null)");
    out.append(R"(},"logprobs":null,"finish_reason":")");
    out.append(chat_finish_reason(end.finish)).append("\"}]");
    if (!end.extension.empty()) out.append(R"(,"hadal":)").append(end.extension);
    if (last && !plan_.strict_usage_chunk) {
      out.append(R"(,"usage":)");
      append_chat_usage(out, usage, plan_.thinking);
      out.append("}\n\n");
    } else {
      out.append(usage_tail_);
    }
    if (!last) return;
    if (plan_.strict_usage_chunk && plan_.include_usage) {
      out.append(head_).append(R"(],"usage":)");
      append_chat_usage(out, usage, plan_.thinking);
      out.append("}\n\n");
    }
    out.append("data: [DONE]\n\n");
  }

  void fail(const core::Error& error, std::string& out) override {
    out.append("data: ").append(error_body(error, Api::kChat, plan_.compat)).append("\n\n");
    out.append("data: [DONE]\n\n");
  }

 private:
  void end_text(Logprobs tokens, std::string_view list, std::string& out) {
    if (tokens.empty()) {
      out.append(tail_);
      return;
    }
    out.append(R"(},"logprobs":{")").append(list).append("\":[");
    append_logprobs(out, tokens, vocabulary_);
    out.append(R"(]},"finish_reason":null}])").append(usage_tail_);
  }

  const ResponsePlan plan_;
  const bool continues_answer_;  // the prompt ends inside the answer: no reasoning comes
  const Vocabulary& vocabulary_;
  CallIds ids_;
  std::string head_;                 // up to "choices":[
  std::vector<std::string> deltas_;  // by choice, up to "delta":{
  std::string tail_;                 // from behind the delta's members
  std::string usage_tail_;           // from behind the choices
  std::vector<uint32_t> n_calls_;
};

class ChatBody final : public ResponseWriter {
 public:
  ChatBody(const ParsePlan& parse, ResponsePlan plan, const Vocabulary& vocabulary,
           ResponseIdentity identity)
      : plan_(std::move(plan)),
        continues_answer_(parse.stage == StartStage::kContentContinuation),
        vocabulary_(vocabulary),
        identity_(std::move(identity)),
        ids_(identity_.seed),
        choices_(plan_.n),
        finishes_(plan_.n, Finish::kStop),
        extensions_(plan_.n) {}

  void begin(const Usage&, std::string&) override {}
  void reasoning(uint32_t choice, std::string_view text, Logprobs tokens, std::string&) override {
    Transcript& at = choices_[choice];
    at.reasoning.append(text);
    add_logprobs(at.reasoning_logprobs, at.has_reasoning_logprobs, tokens);
  }
  void content(uint32_t choice, std::string_view text, Logprobs tokens, std::string&) override {
    Transcript& at = choices_[choice];
    at.content.append(text);
    add_logprobs(at.content_logprobs, at.has_content_logprobs, tokens);
  }
  void call(uint32_t choice, std::string_view name, std::string&) override {
    std::vector<CallRecord>& calls = choices_[choice].calls;
    calls.push_back({ids_.next(calls.size()), std::string(name), {}});
  }
  void arguments(uint32_t choice, std::string_view json, std::string&) override {
    choices_[choice].calls.back().arguments.append(json);
  }
  void call_end(uint32_t, bool, std::string&) override {}
  void fail(const core::Error&, std::string&) override {}

  void end_choice(uint32_t choice, const ChoiceEnd& end, const Usage& usage, bool last,
                  std::string& out) override {
    finishes_[choice] = end.finish;
    extensions_[choice] = end.extension;
    if (!last) return;
    out.append(frame_head(plan_, identity_, "chat.completion")).append(R"(,"choices":[)");
    for (uint32_t i = 0; i < plan_.n; ++i) {
      if (i > 0) out.push_back(',');
      append_choice(i, out);
    }
    out.append(R"(],"usage":)");
    append_chat_usage(out, usage, plan_.thinking);
    out.append(R"(,"system_fingerprint":)");
    append_quoted_or_null(out, identity_.fingerprint);
    append_extensions(extensions_, out);
    out.push_back('}');
  }

 private:
  void add_logprobs(std::string& list, bool& has, Logprobs tokens) {
    if (tokens.empty()) return;
    if (has) list.push_back(',');
    has = true;
    append_logprobs(list, tokens, vocabulary_);
  }

  void append_choice(uint32_t i, std::string& out) const {
    const Transcript& at = choices_[i];
    out.append(R"({"index":)");
    append_number(out, i);
    out.append(R"(,"message":{"role":"assistant","content":)");
    append_quoted(out, at.content);
    if (plan_.thinking && !continues_answer_) {
      out.append(R"(,"reasoning_content":)");
      append_quoted(out, at.reasoning);
    }
    for (size_t k = 0; k < at.calls.size(); ++k) {
      out.append(k == 0 ? R"(,"tool_calls":[{"index":)" : R"(,{"index":)");
      append_number(out, uint64_t{k});
      out.append(R"(,"id":")").append(at.calls[k].id);
      out.append(R"(","type":"function","function":{"name":)");
      append_quoted(out, at.calls[k].name);
      out.append(R"(,"arguments":)");
      append_quoted(out, at.calls[k].arguments);
      out.append("}}");
    }
    if (!at.calls.empty()) out.push_back(']');
    out.append(R"(},"logprobs":)");
    if (!at.has_content_logprobs && !at.has_reasoning_logprobs) {
      out.append("null");
    } else {
      out.push_back('{');
      if (at.has_content_logprobs)
        out.append(R"("content":[)").append(at.content_logprobs).append("]");
      if (at.has_content_logprobs && at.has_reasoning_logprobs) out.push_back(',');
      if (at.has_reasoning_logprobs) {
        out.append(R"("reasoning_content":[)").append(at.reasoning_logprobs).append("]");
      }
      out.push_back('}');
    }
    out.append(R"(,"finish_reason":")").append(chat_finish_reason(finishes_[i])).append("\"}");
  }

  const ResponsePlan plan_;
  const bool continues_answer_;  // the prompt ends inside the answer: no reasoning comes
  const Vocabulary& vocabulary_;
  const ResponseIdentity identity_;
  CallIds ids_;
  std::vector<Transcript> choices_;
  std::vector<Finish> finishes_;
  std::vector<std::string> extensions_;
};

}  // namespace

std::unique_ptr<ResponseWriter> make_chat_writer(const ParsePlan& parse, ResponsePlan plan,
                                                 const Vocabulary& vocabulary,
                                                 ResponseIdentity identity) {
  if (plan.stream)
    return std::make_unique<ChatStream>(parse, std::move(plan), vocabulary, identity);
  return std::make_unique<ChatBody>(parse, std::move(plan), vocabulary, std::move(identity));
}

}  // namespace hadal::openai
