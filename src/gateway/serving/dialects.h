#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/options.h"

namespace hadal::serving {

// One API dialect: its paths and how its bodies are read.
struct Dialect {
  recipe::Api api;
  std::string_view id_prefix;
  std::vector<std::string_view> paths;  // POST; the first is the official one
  core::Result<recipe::CodecRequest> (*parse)(std::string body,
                                              const recipe::CodecOptions& options);
};

const std::vector<Dialect>& dialects();

}  // namespace hadal::serving
