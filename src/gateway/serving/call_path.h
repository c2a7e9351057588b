#pragma once

#include <optional>

#include "base/core/result.h"
#include "base/tokenizer/tokenizer.h"
#include "base/types/request.h"
#include "base/types/token_path.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/options.h"

namespace hadal::serving {

// The path that makes a call certain when tool_choice is required or names a tool: the opening of
// the call block (behind </think> when the model thinks first; in the prompt already when it does
// not), of the call, and one of the tools' names. nullopt: no call is asked for, or the prompt
// itself ends inside the call of the named tool.
// kInvalidRequest: the vocabulary lacks a token of the markup, or the names are too many.
core::Result<std::optional<types::TokenPath>> make_call_path(const recipe::CodecRequest& request,
                                                             const recipe::CodecOptions& options,
                                                             const tokenizer::Tokenizer& tokenizer,
                                                             types::TokenId end_token);

}  // namespace hadal::serving
