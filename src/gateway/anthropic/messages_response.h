#pragma once

#include <memory>

#include "gateway/recipe/response_writer.h"

namespace hadal::anthropic {

// Writes Messages answers: named events of `plan.stream`, else one object. `vocabulary` must
// outlive the writer.
std::unique_ptr<recipe::ResponseWriter> make_messages_writer(const recipe::ParsePlan& parse,
                                                             recipe::ResponsePlan plan,
                                                             const recipe::Vocabulary& vocabulary,
                                                             recipe::ResponseIdentity identity);

}  // namespace hadal::anthropic
