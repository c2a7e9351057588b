#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/options.h"
#include "gateway/recipe/response_writer.h"

namespace hadal::serving {

// One API dialect: how its bodies are read and its answers written.
struct Dialect {
  recipe::Api api;
  std::string_view id_prefix;
  std::vector<std::string_view> paths;  // POST; the first is the official one
  core::Result<recipe::CodecRequest> (*parse)(std::string body,
                                              const recipe::CodecOptions& options);
  std::unique_ptr<recipe::ResponseWriter> (*make_writer)(const recipe::ParsePlan& parse,
                                                         recipe::ResponsePlan plan,
                                                         const recipe::Vocabulary& vocabulary,
                                                         recipe::ResponseIdentity identity);
};

const std::vector<Dialect>& dialects();

}  // namespace hadal::serving
