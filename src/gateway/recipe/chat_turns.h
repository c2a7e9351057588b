#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "base/types/request.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/options.h"

namespace hadal::tokenizer {
class Tokenizer;
}

namespace hadal::recipe {

// A plain chat for programs that have no HTTP request.
struct ChatTurn {
  Role role = Role::kUser;  // kSystem, kUser or kAssistant
  std::string content;
  std::string reasoning;  // kAssistant
};

// Token ids of the prompt that asks for the next assistant turn. `effort`: 1..100 (50 low, 75 high,
// 100 max); ignored unless `thinking`.
core::Result<std::vector<types::TokenId>> encode_turns(std::span<const ChatTurn> turns,
                                                       bool thinking, uint32_t effort,
                                                       const tokenizer::Tokenizer& tokenizer,
                                                       const CodecOptions& options = {});

// The ParsePlan of the answer to such a prompt.
ParsePlan turns_plan(bool thinking, const CodecOptions& options = {});

}  // namespace hadal::recipe
