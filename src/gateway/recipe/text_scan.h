#pragma once

#include <string_view>

namespace hadal::recipe {

// First byte in [at, end) that ends a run of plain characters of a JSON string: '"', '\\' or below
// 0x20; `end` if none.
const char* find_string_stop(const char* at, const char* end);

bool is_valid_utf8(std::string_view text);

}  // namespace hadal::recipe
