#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/decoder.h"
#include "gateway/recipe/plan.h"
#include "gateway/recipe/server_tools.h"
#include "gateway/recipe/vocabulary.h"

namespace hadal::recipe {

// What one answer is called. `fingerprint` "": null.
struct ResponseIdentity {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string fingerprint;
  uint64_t seed = 0;                  // of the random part of call ids; random itself
  std::string reasoning_key;          // 32 bytes that seal reasoning for clients; "": not sealed
  std::function<int64_t()> now = {};  // seconds since 1970, for the end; unset: `created`
};

struct Usage {
  uint32_t prompt_tokens = 0, cached_tokens = 0;
  uint32_t image_tokens = 0;       // of the prompt
  uint32_t completion_tokens = 0;  // all choices together
  uint32_t reasoning_tokens = 0;
  uint32_t web_searches = 0, web_fetches = 0;  // run by the server
};

// How one choice ended.
struct ChoiceEnd {
  Finish finish = Finish::kStop;
  std::string_view stop_sequence;
  std::string_view extension;  // the `hadal` object as JSON, or ""
};

// The `hadal` member of a whole answer of several choices: the object of one choice, a list for
// more (an empty object where a choice has nothing to tell). Nothing if none has.
void append_extensions(std::span<const std::string> extensions, std::string& out);

// Writes an answer in one dialect, streamed or whole, by appending to a caller's buffer: streamed
// answers as complete server-sent events, whole ones as one body at finish(). Order of calls:
// begin; parts of the choices, interleaved as they come; end_choice once for each; finish. fail may
// take the place of any of them and ends the answer.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  virtual void begin(const Usage& prompt, std::string& out) = 0;
  virtual void reasoning(uint32_t choice, std::string_view text, Logprobs tokens,
                         std::string& out) = 0;
  virtual void content(uint32_t choice, std::string_view text, Logprobs tokens,
                       std::string& out) = 0;
  virtual void call(uint32_t choice, std::string_view name, std::string& out) = 0;
  virtual void arguments(uint32_t choice, std::string_view json, std::string& out) = 0;
  virtual void call_end(uint32_t choice, bool complete, std::string& out) = 0;
  // What a server tool gave: of the `index`-th of the calls of such tools, all rounds together.
  // Comes after the calls of its round. Only dialects that take such tools are called.
  virtual void server_result(uint32_t, size_t, const ServerToolResult&, std::string&) {}
  // `usage` is final when `last`.
  virtual void end_choice(uint32_t choice, const ChoiceEnd& end, const Usage& usage, bool last,
                          std::string& out) = 0;
  // An error after the stream began. Whole answers write nothing: the caller sends the error.
  virtual void fail(const core::Error& error, std::string& out) = 0;
  // The answer as one object, after the last end_choice, if this dialect stores answers; else "".
  virtual std::string final_object() const { return {}; }
};

// A call as it was made, kept for whole answers.
struct CallRecord {
  std::string id, name, arguments;
};

// One choice as far as it came.
struct Transcript {
  std::string reasoning, content;
  // Entries of logprobs, comma-separated JSON; has_*: the list exists.
  std::string reasoning_logprobs, content_logprobs;
  bool has_reasoning_logprobs = false, has_content_logprobs = false;
  std::vector<CallRecord> calls;
};

// `call_NN_` and 20 letters and digits and 4 digits; NN counts from 00.
class CallIds {
 public:
  explicit CallIds(uint64_t seed) : state_(seed) {}
  std::string next(size_t index);

 private:
  uint64_t random();
  uint64_t state_;
};

// Appends entries {"token","logprob","bytes","top_logprobs"} separated by commas.
void append_logprobs(std::string& out, Logprobs tokens, const Vocabulary& vocabulary);
// A token's text; bytes that are no UTF-8 alone are spelt \xNN.
void append_token_text(std::string& out, std::string_view bytes);

// Appends `json` if it is a JSON object, else "{}". On one line: the model's line breaks between
// values become spaces, for an answer is a line of a batch or of an event.
void append_object(std::string& out, std::string_view json);

std::string_view chat_finish_reason(Finish finish);

}  // namespace hadal::recipe
