#pragma once

#include <memory>

#include "gateway/recipe/response_writer.h"

namespace hadal::openai {

// Writes Responses answers: named events of `plan.stream`, else one object; final_object() is what
// a store keeps. `vocabulary` must outlive the writer.
std::unique_ptr<recipe::ResponseWriter> make_responses_writer(const recipe::ParsePlan& parse,
                                                              recipe::ResponsePlan plan,
                                                              const recipe::Vocabulary& vocabulary,
                                                              recipe::ResponseIdentity identity);

// The object of a response that has not begun or was cancelled or failed (background, GET), with
// an empty output. `status`: "queued", "in_progress", "cancelled", "failed".
std::string empty_response_object(const recipe::ResponsePlan& plan,
                                  const recipe::ResponseIdentity& identity,
                                  std::string_view status);

}  // namespace hadal::openai
