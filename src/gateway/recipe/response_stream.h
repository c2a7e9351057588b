#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "base/types/engine_port.h"
#include "gateway/recipe/plan.h"
#include "gateway/recipe/response_writer.h"
#include "gateway/recipe/vocabulary.h"

namespace hadal::recipe {

// One answer in the making: takes the tokens of each choice and appends the bytes that the client
// gets, streamed (server-sent events) or whole (the body, when the last choice ends). It also
// decides when an output is complete before the engine would end it (stop sequences, the last
// allowed call) and keeps usage.
//
//   ResponseStream stream(std::move(parts));   // make_response_stream() of the dialects' writers
//   stream.begin(prompt_usage, out);           // once, before the first token
//   stream.on_tokens(choice, events, n, out);  // from TokenSink::on_tokens
//   stream.on_done(choice, completion, out);   // from TokenSink::on_done; true: the answer ended
//
// `out` is appended to, never read; hand it to the connection as it is. Thread: one at a time; the
// choices of n > 1 share one object.
class ResponseStream {
 public:
  struct Parts {
    ParsePlan parse;
    ResponsePlan response;
    Extension extension;
    const Vocabulary* vocabulary = nullptr;  // outlives the stream
    std::unique_ptr<ResponseWriter> writer;
    std::vector<types::TokenId> prompt_ids;  // only with Extension::return_token_ids
  };
  explicit ResponseStream(Parts parts);
  ~ResponseStream();
  ResponseStream(const ResponseStream&) = delete;
  ResponseStream& operator=(const ResponseStream&) = delete;

  // `prompt`: the counts known before generation; cached tokens may come with on_start.
  void begin(const Usage& prompt, std::string& out);
  void on_start(uint32_t n_cached_tokens) {
    usage_.cached_tokens = cached_before_ + n_cached_tokens;
  }
  // Takes events in order. kStop: the output is complete at the last token taken.
  types::SinkAnswer on_tokens(uint32_t choice, std::span<const types::TokenEvent> events,
                              size_t& n_taken, std::string& out);
  // Text in place of tokens, counted as `n_tokens` (`hadal decode`, scripts). True: go on.
  bool on_text(uint32_t choice, std::string_view text, uint32_t n_tokens, std::string& out);
  // Returns true when that was the last choice: the answer is complete, or failed().
  bool on_done(uint32_t choice, const types::Completion& completion, std::string& out);

  // ---- tools that the server runs (server_tools.h); one choice ----
  // One call of such a tool, and the output of the round that it stands in.
  struct ServerCall {
    ToolKind kind = ToolKind::kWebSearch;
    std::string name, arguments;
  };
  struct Round {
    std::string reasoning, content;
    std::vector<ServerCall> calls;
    bool calls_client = false;  // the client has calls to answer too: no other round
  };
  // After on_done() returned false: the round whose calls wait for their results, or null.
  const Round* waiting() const { return waiting_ ? &round_ : nullptr; }
  // Shows the result of the next call that waits. Once for each, in order.
  void add_result(const ServerToolResult& result, std::string& out);
  // All results are there. Either the answer ends here, as on_done() would have ended it (`pause`:
  // because no other round is wanted)...
  void end_round(bool pause, std::string& out);
  // ... or the next round begins, with a prompt of so many tokens.
  void begin_round(uint32_t n_prompt_tokens);

  // Ends the answer with an error (a stream gets an error event).
  void fail(core::Error error, std::string& out);

  bool streamed() const { return parts_.response.stream; }
  // Set when the answer ended with an error: a whole answer is then error_body() with its status.
  const std::optional<core::Error>& failed() const { return failure_; }
  const Usage& usage() const { return usage_; }
  // The Finish of each choice that ended, for metrics and logs.
  std::optional<Finish> finish_of(uint32_t choice) const;
  // Call markup of the choice that the client does not see, for logs: "empty_block:1", or "".
  std::string lost_markup(uint32_t choice) const;
  // The Responses object to be stored, after the end.
  std::string final_object() const { return parts_.writer->final_object(); }

 private:
  struct Choice;
  std::string extension_json(const Choice& choice, const types::Completion& completion) const;
  void count(Choice& choice, uint32_t n_tokens, bool was_reasoning);
  bool record_call(std::string_view name);
  void end_choice(uint32_t index, const types::Completion& completion, std::string& out);

  Parts parts_;
  std::vector<std::unique_ptr<Choice>> choices_;
  size_t n_open_ = 0;
  Usage usage_;
  // Server tools: what the model wrote since the last results.
  uint32_t cached_before_ = 0;  // of earlier rounds
  bool has_server_tools_ = false;
  bool waiting_ = false;
  bool in_server_call_ = false;
  Round round_;
  size_t n_results_ = 0, n_round_results_ = 0;
  types::Completion completion_;  // of the round that waits
  std::optional<core::Error> failure_;
};

}  // namespace hadal::recipe
