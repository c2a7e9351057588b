#include "gateway/recipe/response_stream.h"

#include <array>

#include "base/core/check.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/text_assembler.h"

namespace hadal::recipe {

// One choice: its decoder, and the way of the decoder's parts to the writer.
struct ResponseStream::Choice final : DecoderSink {
  Choice(ResponseStream& stream, uint32_t choice_index)
      : owner(stream),
        index(choice_index),
        decoder(stream.parts_.parse, *this,
                {.logprobs = stream.parts_.response.logprobs,
                 .raw = stream.parts_.response.api == Api::kCompletions}),
        assembler(*stream.parts_.vocabulary, decoder, stream.parts_.response.logprobs),
        chunks(*stream.parts_.vocabulary, decoder, stream.parts_.response.logprobs) {}

  void on_reasoning(std::string_view text, Logprobs tokens) override {
    reasoned = true;
    if (owner.parts_.parse.compat) reasoning.append(text);
    if (owner.has_server_tools_) owner.round_.reasoning.append(text);
    owner.parts_.writer->reasoning(index, text, tokens, *out);
  }
  void on_content(std::string_view text, Logprobs tokens) override {
    if (owner.has_server_tools_) owner.round_.content.append(text);
    owner.parts_.writer->content(index, text, tokens, *out);
  }
  void on_call(std::string_view name) override {
    if (owner.has_server_tools_) owner.in_server_call_ = owner.record_call(name);
    owner.parts_.writer->call(index, name, *out);
  }
  void on_arguments(std::string_view json) override {
    if (owner.in_server_call_) owner.round_.calls.back().arguments.append(json);
    owner.parts_.writer->arguments(index, json, *out);
  }
  void on_call_end(bool complete) override { owner.parts_.writer->call_end(index, complete, *out); }

  ResponseStream& owner;
  const uint32_t index;
  Decoder decoder;
  TextAssembler assembler;
  ChunkAssembler chunks;
  std::string* out = nullptr;  // of the call in progress
  bool reasoned = false;       // this push delivered reasoning
  std::string reasoning;       // compat: counted at the end
  std::vector<types::TokenId> token_ids;
  std::optional<Finish> finish;
};

ResponseStream::ResponseStream(Parts parts) : parts_(std::move(parts)) {
  for (uint32_t i = 0; i < parts_.response.n; ++i) {
    choices_.push_back(std::make_unique<Choice>(*this, i));
  }
  n_open_ = choices_.size();
  for (const DeclaredTool& tool : parts_.parse.tools) {
    has_server_tools_ |= is_server_tool(tool.kind);
  }
}

ResponseStream::~ResponseStream() = default;

void ResponseStream::begin(const Usage& prompt, std::string& out) {
  usage_ = prompt;
  parts_.writer->begin(prompt, out);
}

// A token counts as reasoning while it is read in that stage; the end tag does not.
void ResponseStream::count(Choice& choice, uint32_t n_tokens, bool was_reasoning) {
  usage_.completion_tokens += n_tokens;
  if (parts_.parse.compat) return;  // counted at the end
  if (was_reasoning && (choice.reasoned || choice.decoder.in_reasoning())) {
    usage_.reasoning_tokens += n_tokens;
  }
}

types::SinkAnswer ResponseStream::on_tokens(uint32_t index,
                                            std::span<const types::TokenEvent> events,
                                            size_t& n_taken, std::string& out) {
  Choice& choice = *choices_[index];
  choice.out = &out;
  n_taken = 0;
  if (failure_.has_value()) return types::SinkAnswer::kStop;
  if (parts_.parse.compat) {
    usage_.completion_tokens += static_cast<uint32_t>(choice.chunks.push(events));
    n_taken = events.size();
  }
  while (n_taken < events.size() && !choice.decoder.stopped()) {
    const types::TokenEvent& event = events[n_taken++];
    const bool was_reasoning = choice.decoder.in_reasoning();
    choice.reasoned = false;
    choice.assembler.push(event);
    count(choice, 1, was_reasoning);
  }
  if (parts_.extension.return_token_ids) {
    for (size_t i = 0; i < n_taken; ++i) choice.token_ids.push_back(events[i].token);
  }
  return choice.decoder.stopped() ? types::SinkAnswer::kStop : types::SinkAnswer::kContinue;
}

bool ResponseStream::on_text(uint32_t index, std::string_view text, uint32_t n_tokens,
                             std::string& out) {
  Choice& choice = *choices_[index];
  choice.out = &out;
  const bool was_reasoning = choice.decoder.in_reasoning();
  choice.reasoned = false;
  choice.decoder.push(text, Origin::kText);
  count(choice, n_tokens, was_reasoning);
  return !choice.decoder.stopped();
}

bool ResponseStream::on_done(uint32_t index, const types::Completion& completion,
                             std::string& out) {
  Choice& choice = *choices_[index];
  choice.out = &out;
  if (failure_.has_value() || choice.finish.has_value()) return n_open_ == 0;
  switch (completion.reason) {
    case types::FinishReason::kError:
      fail({core::Code::kInternal, completion.error}, out);
      return true;
    case types::FinishReason::kDeadline:
      fail({core::Code::kDeadlineExceeded, completion.error}, out);
      return true;
    case types::FinishReason::kCancelled:
      fail({core::Code::kCancelled, "the request was cancelled"}, out);
      return true;
    default:
      break;
  }
  if (!parts_.parse.compat && !choice.decoder.stopped()) choice.assembler.finish();
  choice.finish = choice.decoder.finish(completion.reason);
  if (*choice.finish == Finish::kToolCalls && !round_.calls.empty()) {
    waiting_ = true;
    n_round_results_ = 0;
    completion_ = completion;
    return false;
  }
  end_choice(index, completion, out);
  return n_open_ == 0;
}

void ResponseStream::end_choice(uint32_t index, const types::Completion& completion,
                                std::string& out) {
  Choice& choice = *choices_[index];
  if (parts_.parse.compat) {
    usage_.reasoning_tokens +=
        static_cast<uint32_t>(parts_.vocabulary->count_tokens(choice.reasoning));
  }
  const std::string extension = extension_json(choice, completion);
  const ChoiceEnd end{*choice.finish, choice.decoder.stop_sequence(), extension};
  --n_open_;
  parts_.writer->end_choice(index, end, usage_, n_open_ == 0, out);
}

// True if it is a call of a server tool.
bool ResponseStream::record_call(std::string_view name) {
  for (const DeclaredTool& tool : parts_.parse.tools) {
    if (tool.name != name || !is_server_tool(tool.kind)) continue;
    round_.calls.push_back({tool.kind, tool.name, {}});
    return true;
  }
  round_.calls_client = true;
  return false;
}

void ResponseStream::add_result(const ServerToolResult& result, std::string& out) {
  HADAL_CHECK(waiting_ && n_round_results_ < round_.calls.size(), "a result that nobody waits for");
  ++n_round_results_;
  if (result.error.empty()) {
    ++(result.kind == ToolKind::kWebSearch ? usage_.web_searches : usage_.web_fetches);
  }
  parts_.writer->server_result(0, n_results_++, result, out);
}

void ResponseStream::end_round(bool pause, std::string& out) {
  HADAL_CHECK(waiting_ && n_round_results_ == round_.calls.size(), "a round without its results");
  waiting_ = false;
  if (!round_.calls_client) choices_[0]->finish = pause ? Finish::kPause : Finish::kStop;
  end_choice(0, completion_, out);
}

void ResponseStream::begin_round(uint32_t n_prompt_tokens) {
  HADAL_CHECK(waiting_ && n_round_results_ == round_.calls.size(), "a round without its results");
  waiting_ = in_server_call_ = false;
  round_ = {};
  cached_before_ = usage_.cached_tokens;
  usage_.prompt_tokens += n_prompt_tokens;
  // A forced first call is made; from here on the model is free.
  ParsePlan& plan = parts_.parse;
  plan.starts_in_tool_calls = false;
  plan.forced_tool.clear();
  plan.stage = plan.thinking ? StartStage::kReasoning : StartStage::kAnswer;
  auto next = std::make_unique<Choice>(*this, 0);
  next->token_ids = std::move(choices_[0]->token_ids);
  choices_[0] = std::move(next);
}

void ResponseStream::fail(core::Error error, std::string& out) {
  if (failure_.has_value()) return;
  parts_.writer->fail(error, out);
  failure_ = std::move(error);
  n_open_ = 0;
}

namespace {

struct Loss {
  std::string_view code;
  uint32_t count;
};

std::array<Loss, 5> losses_of(const LostMarkup& lost) {
  return {{{"empty_call_block", lost.empty_blocks},
           {"undeclared_call", lost.undeclared_calls},
           {"unfinished_call", lost.unfinished_calls},
           {"hidden_markup", lost.hidden_tokens},
           {"text_after_calls", lost.texts_after_calls}}};
}

void append_warnings(std::string& out, const LostMarkup& lost) {
  out.append(R"("warnings":[)");
  for (const Loss& loss : losses_of(lost)) {
    if (loss.count == 0) continue;
    if (out.back() == '}') out.push_back(',');
    out.append(R"({"code":)");
    append_quoted(out, loss.code);
    out.append(R"(,"count":)");
    append_number(out, loss.count);
    out.push_back('}');
  }
  out.append("],");
}

}  // namespace

std::string ResponseStream::lost_markup(uint32_t choice) const {
  std::string text;
  for (const Loss& loss : losses_of(choices_[choice]->decoder.lost())) {
    if (loss.count == 0) continue;
    if (!text.empty()) text.push_back(' ');
    text.append(loss.code).push_back(':');
    append_number(text, loss.count);
  }
  return text;
}

std::optional<Finish> ResponseStream::finish_of(uint32_t choice) const {
  return choices_[choice]->finish;
}

namespace {

void append_ids(std::string& out, std::string_view key, const std::vector<types::TokenId>& ids) {
  append_quoted(out, key);
  out.append(":[");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out.push_back(',');
    append_number(out, ids[i]);
  }
  out.append("],");
}

void append_timings(std::string& out, const types::Timings& timings) {
  out.append(R"("timings":{"queue_ms":)");
  append_number(out, timings.queue_ms);
  out.append(R"(,"prefill_ms":)");
  append_number(out, timings.prefill_ms);
  out.append(R"(,"decode_ms":)");
  append_number(out, timings.decode_ms);
  out.append(R"(,"cached_tokens":{"device":)");
  append_number(out, timings.cached_tokens_device);
  out.append(R"(,"host":)");
  append_number(out, timings.cached_tokens_host);
  out.append(R"(,"disk":)");
  append_number(out, timings.cached_tokens_disk);
  out.append(R"(},"replayed_tokens":)");
  append_number(out, timings.replayed_tokens);
  out.append(R"(,"cache_miss":)");
  append_quoted(out, types::cache_miss_name(timings.miss));
  if (timings.miss == types::CacheMiss::kDiverged) {
    out.append(R"(,"first_different_token":)");
    append_number(out, timings.first_different_token);
  }
  out.append(R"(,"preemptions":)");
  append_number(out, timings.n_preemptions);
  out.append("},");
}

}  // namespace

std::string ResponseStream::extension_json(const Choice& choice,
                                           const types::Completion& completion) const {
  const Extension& asked = parts_.extension;
  const LostMarkup& lost = choice.decoder.lost();
  std::string json;
  if (!asked.return_token_ids && !asked.timings && !lost.any()) return json;
  json.push_back('{');
  if (lost.any()) append_warnings(json, lost);
  if (asked.return_token_ids) {
    append_ids(json, "token_ids", choice.token_ids);
    append_ids(json, "prompt_token_ids", parts_.prompt_ids);
  }
  if (asked.timings) append_timings(json, completion.timings);
  json.back() = '}';
  return json;
}

}  // namespace hadal::recipe
