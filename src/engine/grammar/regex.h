#pragma once

#include <memory>
#include <string_view>

#include "base/core/result.h"
#include "engine/grammar/grammar.h"

namespace hadal::grammar {

// A grammar of the texts that `expression` matches as a whole, with or without anchors
// (regex_syntax.h says what is read). kInvalidRequest names what is not available, or that it would
// need too many states, with the place in the expression.
core::Result<std::shared_ptr<const Grammar>> compile_regex(std::string_view expression);

}  // namespace hadal::grammar
