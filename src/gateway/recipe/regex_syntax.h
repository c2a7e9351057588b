#pragma once

#include <string_view>

namespace hadal::recipe {

// Whether `pattern` is a regular expression as JSON Schemas use them: ECMA syntax without
// back-references. Linear in its size.
bool is_regex(std::string_view pattern);

}  // namespace hadal::recipe
