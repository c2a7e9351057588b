#pragma once

#include <string>

#include "base/core/result.h"
#include "gateway/recipe/options.h"

namespace hadal::recipe {

// The HTTP status of an error code (docs/architecture.md 3.3).
int http_status(core::Code code);

// The JSON body that HTTP sends for `error`: the OpenAI form with the field's path in `param`, the
// Messages form for Api::kMessages (its message opens with the path); with `compat` the one form of
// deepseek-recipe 0.2.0 for all dialects.
std::string error_body(const core::Error& error, Api api, bool compat);

}  // namespace hadal::recipe
