#pragma once

#include <string>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::openai {

// Reads the body of POST /v1/responses.
core::Result<recipe::CodecRequest> parse_responses_request(std::string body,
                                                           const recipe::CodecOptions& options);

}  // namespace hadal::openai
