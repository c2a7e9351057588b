#pragma once

#include <string>

#include "gateway/recipe/response_writer.h"

namespace hadal::openai {

// The usage object of Chat Completions and Completions; `reasoning`: with the count of reasoning
// tokens.
void append_chat_usage(std::string& out, const recipe::Usage& usage, bool reasoning);

}  // namespace hadal::openai
