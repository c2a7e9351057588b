#pragma once

#include <string>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::anthropic {

// Reads the body of POST /v1/messages.
core::Result<recipe::CodecRequest> parse_messages_request(std::string body,
                                                          const recipe::CodecOptions& options);

}  // namespace hadal::anthropic
