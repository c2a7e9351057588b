#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/core/result.h"
#include "base/tokenizer/tokenizer.h"
#include "base/types/engine_port.h"
#include "base/types/request.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/encode.h"
#include "gateway/recipe/options.h"

namespace hadal::serving {

// What the engine side needs to know to take a request.
struct EngineView {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  types::EngineLimits limits;
  types::TokenId end_token = -1;
  uint64_t seed = 0;  // for a request that brings none; another one for each
  bool script =
      false;  // the script backend: its context is the codec's, and constraints do not matter
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

// A parsed request of any dialect as the engine takes it, without id, tenant and stream: prompt
// ids, sampling, limits. The choices of n > 1 are copies with their own stream number.
//   kContextTooLong  the prompt leaves no room for an answer
//   kInvalidRequest  something that this engine cannot do: pictures, an enforced schema on the
//   model
core::Result<types::Request> make_engine_request(const recipe::CodecRequest& request,
                                                 const recipe::CodecOptions& options,
                                                 const EngineView& engine);

// A script's text as tokens: the added vocabulary is matched, as a model's output would hold it.
types::ScriptPlay make_script_play(std::string_view text, uint32_t step, std::string_view finish,
                                   uint32_t pace_ms, const tokenizer::Tokenizer& tokenizer);

}  // namespace hadal::serving
