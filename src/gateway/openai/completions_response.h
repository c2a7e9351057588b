#pragma once

#include <memory>

#include "gateway/recipe/response_writer.h"

namespace hadal::openai {

// Writes answers of /v1/completions: chunks of `plan.stream`, else one object. `vocabulary` must
// outlive the writer.
std::unique_ptr<recipe::ResponseWriter> make_completions_writer(
    const recipe::ParsePlan& parse, recipe::ResponsePlan plan, const recipe::Vocabulary& vocabulary,
    recipe::ResponseIdentity identity);

}  // namespace hadal::openai
