#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/recipe/response_writer.h"

namespace hadal::openai {

// The parts of a Responses object that change while it is made.
struct ResponsesState {
  std::string_view status;  // "in_progress", "completed", ...
  std::optional<int64_t> completed_at = {};
  std::string_view incomplete_reason = "";  // "" or "max_output_tokens", "content_filter"
  std::string_view error = "null";          // JSON
  std::string_view output = "";             // items, comma-separated JSON
  const recipe::Usage* usage = nullptr;
  std::string_view extension = "";
};

void append_responses_object(std::string& out, const recipe::ResponsePlan& plan,
                             const recipe::ResponseIdentity& identity, const ResponsesState& state);

}  // namespace hadal::openai
