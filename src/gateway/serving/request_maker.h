#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "base/tokenizer/tokenizer.h"
#include "base/types/engine_port.h"
#include "gateway/fetch/web_provider.h"
#include "gateway/recipe/options.h"
#include "gateway/recipe/response_stream.h"
#include "gateway/recipe/tokenizer_vocabulary.h"
#include "gateway/serving/dialects.h"
#include "gateway/serving/script_file.h"
#include "gateway/serving/tool_rounds.h"

namespace hadal::serving {

// Whose request it is and what it goes on from.
struct Origin {
  std::string tenant;
  std::span<const std::string> history;  // Responses: lists of items that stand before the input
  std::string id = {};                   // of the answer; "": a new one
  int64_t created = 0;                   // seconds since 1970; 0: now
  int32_t priority = 0;
  // Offline work is done in one piece: responses are not kept, what needs the store is refused, and
  // the server runs no tools.
  bool offline = false;
};

// A body that can be submitted: the engine's requests and what writes the answer.
struct MadeRequest {
  std::shared_ptr<recipe::RequestText> text;  // what views in the plan may point into
  std::unique_ptr<recipe::ResponseStream> stream;
  std::vector<types::Request> requests;  // one a choice
  std::shared_ptr<ToolRounds> rounds;    // null: it has no tools that the server runs
  recipe::Usage prompt;
  std::string id, model;
  int64_t created = 0;
  recipe::Api api = recipe::Api::kChat;
  bool event_times = false;  // hadal.event_times
  // Responses: what is to be kept.
  bool store = false, background = false;
  std::string previous, conversation;
  std::string queued_object;  // background: the object before anything was made
};

// Reads bodies of every dialect and makes them ready for the engine: for answers to clients,
// stored batches and files of `hadal generate`. Thread-safe; all references outlive it.
class RequestMaker {
 public:
  struct Config {
    recipe::CodecOptions codec;
    types::TokenId end_token = -1;
    bool script = false;
    bool has_store = false;                   // else no response is kept, and the object says so
    const fetch::WebProvider* web = nullptr;  // null: no web tools
    std::chrono::milliseconds deadline{0};    // of requests that are not offline; 0: none
  };
  RequestMaker(const Config& config, const tokenizer::Tokenizer& tokenizer,
               const types::EnginePort& engine, ScriptFile* script_file);

  // kInvalidRequest and the like with the path of the field.
  core::Result<MadeRequest> make(const Dialect& dialect, std::string body, const Origin& origin);

  const recipe::CodecOptions& codec() const { return config_.codec; }
  // The same with what is a tenant's own: what is sealed for one opens for no other.
  recipe::CodecOptions codec_for(std::string_view tenant) const;
  // A name that no other process gives: 24 hexadecimal digits.
  std::string new_name();
  types::RequestId new_id() { return types::RequestId{next_number_.fetch_add(1)}; }

 private:
  core::Result<recipe::CodecRequest> parse(const Dialect& dialect, std::string body,
                                           const recipe::CodecOptions& options,
                                           const Origin& origin) const;
  std::optional<std::chrono::steady_clock::time_point> deadline_of(const Origin& origin) const;

  std::shared_ptr<ToolRounds> tool_rounds(recipe::CodecRequest& codec,
                                          const recipe::CodecOptions& options,
                                          const EngineView& view, const types::Request& request,
                                          bool scripted_by_file) const;

  const Config config_;
  const tokenizer::Tokenizer& tokenizer_;
  const recipe::TokenizerVocabulary vocabulary_;
  const types::EnginePort& engine_;
  ScriptFile* script_file_;
  const uint64_t salt_;
  const std::string salt_text_;  // in hexadecimal, a part of every name
  std::atomic<uint64_t> next_number_{1};
};

int64_t unix_seconds();

}  // namespace hadal::serving
