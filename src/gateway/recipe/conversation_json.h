#pragma once

#include <string>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::recipe {

// Reads the plain JSON form of a conversation (docs/recipe.md, "A conversation as JSON"): what the
// encoders take, with no dialect around it.
core::Result<CodecRequest> parse_conversation(std::string body, const CodecOptions& options);

}  // namespace hadal::recipe
