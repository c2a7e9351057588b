#include "gateway/openai/completions_response.h"

#include "gateway/openai/usage_json.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_writer.h"

namespace hadal::openai {
namespace {

using namespace recipe;  // NOLINT(google-build-using-namespace): the words of this file

// The four parallel lists of the old logprobs form.
struct TokenLists {
  std::string tokens, logprobs, top, offsets;

  // `offset`: place of the first token's text in the answer, in characters.
  void add(Logprobs list, const Vocabulary& vocabulary, uint64_t& offset) {
    for (const types::TokenEvent& token : list) {
      const std::string_view comma = tokens.empty() ? "" : ",";
      const std::string_view bytes = vocabulary.bytes(token.token);
      tokens.append(comma).push_back('"');
      append_token_text(tokens, bytes);
      tokens.push_back('"');
      append_number(logprobs.append(comma), token.logprob);
      append_number(offsets.append(comma), offset);
      for (const char c : bytes) offset += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
      top.append(comma).push_back('{');
      for (size_t i = 0; i < token.top.size(); ++i) {
        top.append(i == 0 ? "\"" : ",\"");
        append_token_text(top, vocabulary.bytes(token.top[i].token));
        append_number(top.append("\":"), token.top[i].logprob);
      }
      top.push_back('}');
    }
  }

  void append_to(std::string& out) const {
    out.append(R"({"tokens":[)").append(tokens).append(R"(],"token_logprobs":[)").append(logprobs);
    out.append(R"(],"top_logprobs":[)").append(top).append(R"(],"text_offset":[)").append(offsets);
    out.append("]}");
  }

 private:
  static std::string& append_number(std::string& out, float value) {
    recipe::append_number(out, value);
    return out;
  }
  static std::string& append_number(std::string& out, uint64_t value) {
    recipe::append_number(out, value);
    return out;
  }
};

class CompletionsWriter final : public ResponseWriter {
 public:
  CompletionsWriter(ResponsePlan plan, const Vocabulary& vocabulary, ResponseIdentity identity)
      : plan_(std::move(plan)),
        vocabulary_(vocabulary),
        identity_(std::move(identity)),
        choices_(plan_.n),
        extensions_(plan_.n) {
    head_ = R"({"id":)";
    append_quoted(head_, identity_.id);
    head_.append(R"(,"object":"text_completion","created":)");
    append_number(head_, identity_.created);
    head_.append(R"(,"model":)");
    append_quoted(head_, plan_.model);
    head_.append(R"(,"system_fingerprint":)");
    append_quoted_or_null(head_, identity_.fingerprint);
    head_.append(R"(,"choices":[)");
  }

  void begin(const Usage&, std::string& out) override {
    if (!plan_.echo_prompt) return;
    for (uint32_t i = 0; i < plan_.n; ++i) content(i, plan_.prompt_text, {}, out);
  }
  void reasoning(uint32_t, std::string_view, Logprobs, std::string&) override {}
  void call(uint32_t, std::string_view, std::string&) override {}
  void arguments(uint32_t, std::string_view, std::string&) override {}
  void call_end(uint32_t, bool, std::string&) override {}

  void content(uint32_t choice, std::string_view text, Logprobs tokens, std::string& out) override {
    Choice& at = choices_[choice];
    if (!plan_.stream) {
      at.text.append(text);
      at.lists.add(tokens, vocabulary_, at.offset);
      return;
    }
    TokenLists lists;
    lists.add(tokens, vocabulary_, at.offset);
    out.append("data: ").append(head_);
    append_choice(choice, text, tokens.empty() ? nullptr : &lists, "null", out);
    end_chunk(out);
  }

  void end_choice(uint32_t choice, const ChoiceEnd& end, const Usage& usage, bool last,
                  std::string& out) override {
    Choice& at = choices_[choice];
    at.finish.clear();
    append_quoted(at.finish, chat_finish_reason(end.finish));
    extensions_[choice] = end.extension;
    if (plan_.stream) {
      out.append("data: ").append(head_);
      append_choice(choice, "", nullptr, at.finish, out);
      out.push_back(']');
      if (!end.extension.empty()) out.append(R"(,"hadal":)").append(end.extension);
      if (last && !plan_.strict_usage_chunk) {
        append_usage(usage, out);
      } else {
        out.append(null_usage());
      }
      out.append("}\n\n");
      if (!last) return;
      if (plan_.strict_usage_chunk && plan_.include_usage) {
        out.append("data: ").append(head_).push_back(']');
        append_usage(usage, out);
        out.append("}\n\n");
      }
      out.append("data: [DONE]\n\n");
    } else if (last) {
      out.append(head_);
      for (uint32_t i = 0; i < plan_.n; ++i) {
        const Choice& one = choices_[i];
        if (i > 0) out.push_back(',');
        append_choice(i, one.text, plan_.logprobs ? &one.lists : nullptr, one.finish, out);
      }
      out.push_back(']');
      append_usage(usage, out);
      append_extensions(extensions_, out);
      out.push_back('}');
    }
  }

  void fail(const core::Error& error, std::string& out) override {
    if (!plan_.stream) return;
    out.append("data: ").append(error_body(error, Api::kCompletions, plan_.compat));
    out.append("\n\ndata: [DONE]\n\n");
  }

 private:
  struct Choice {
    std::string text, finish = "null";
    TokenLists lists;
    uint64_t offset = 0;
  };

  void append_choice(uint32_t index, std::string_view text, const TokenLists* lists,
                     std::string_view finish, std::string& out) const {
    out.append(R"({"index":)");
    append_number(out, index);
    out.append(R"(,"text":)");
    append_quoted(out, text);
    out.append(R"(,"logprobs":)");
    if (lists == nullptr) {
      out.append("null");
    } else {
      lists->append_to(out);
    }
    out.append(R"(,"finish_reason":)").append(finish).push_back('}');
  }

  std::string_view null_usage() const {
    return !plan_.strict_usage_chunk || plan_.include_usage ? R"(,"usage":null)" : "";
  }
  void end_chunk(std::string& out) const { out.append("]").append(null_usage()).append("}\n\n"); }
  static void append_usage(const Usage& usage, std::string& out) {
    out.append(R"(,"usage":)");
    append_chat_usage(out, usage, false);
  }

  const ResponsePlan plan_;
  const Vocabulary& vocabulary_;
  const ResponseIdentity identity_;
  std::string head_;  // up to "choices":[
  std::vector<Choice> choices_;
  std::vector<std::string> extensions_;
};

}  // namespace

std::unique_ptr<ResponseWriter> make_completions_writer(const ParsePlan&, ResponsePlan plan,
                                                        const Vocabulary& vocabulary,
                                                        ResponseIdentity identity) {
  return std::make_unique<CompletionsWriter>(std::move(plan), vocabulary, std::move(identity));
}

}  // namespace hadal::openai
