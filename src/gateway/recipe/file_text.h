#pragma once

#include <string_view>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::recipe {

// The text of a file part: `data` is a data URL of a text type, or bare base64. Kept in `text`.
core::Result<std::string_view> file_text(std::string_view data, std::string_view name,
                                         const std::string& path, RequestText& text);

// Base64 with or without padding, line breaks allowed; false if it is none. `max_bytes` bounds the
// result.
bool decode_base64(std::string_view text, size_t max_bytes, std::string& out);

}  // namespace hadal::recipe
