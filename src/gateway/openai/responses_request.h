#pragma once

#include <span>
#include <string>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::openai {

// Reads the body of POST /v1/responses. `history`: JSON lists of the items that stand before its
// input (stored input and output of previous_response_id or of the conversation), oldest first.
core::Result<recipe::CodecRequest> parse_responses_request(
    std::string body, const recipe::CodecOptions& options,
    std::span<const std::string> history = {});

}  // namespace hadal::openai
