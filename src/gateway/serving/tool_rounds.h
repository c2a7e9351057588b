#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gateway/fetch/web_provider.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/response_stream.h"
#include "gateway/serving/engine_request.h"

namespace hadal::serving {

// An answer in whose course the server runs tools (recipe/server_tools.h): what must be kept of its
// request to go on after each round. One worker at a time.
class ToolRounds {
 public:
  struct Parts {
    recipe::CodecRequest codec;
    recipe::CodecOptions options;
    EngineView engine;
    const fetch::WebProvider* provider = nullptr;  // outlives the answer
    uint32_t max_tokens = 0;                       // of the whole answer
    // Called before each further round (scripts choose their next line); may be empty.
    std::function<void(recipe::CodecRequest&)> prepare;
  };
  explicit ToolRounds(Parts parts) : parts_(std::move(parts)) {}

  // Runs the calls of a round, one after another; beyond the limit of the request they are refused.
  std::vector<recipe::ServerToolResult> run(const recipe::ResponseStream::Round& round);
  // The next round's request: the conversation with what the model wrote and the results.
  // `n_written`: tokens of the answer so far. nullopt: the answer has had its rounds or its tokens.
  core::Result<std::optional<types::Request>> next(
      const recipe::ResponseStream::Round& round,
      const std::vector<recipe::ServerToolResult>& results, uint32_t n_written);

 private:
  Parts parts_;
  uint32_t n_uses_ = 0, n_rounds_ = 0;
};

}  // namespace hadal::serving
