#pragma once

#include "gateway/recipe/field_check.h"
#include "gateway/recipe/options.h"

namespace hadal::openai {

// The types of every field of a Responses body that is read later.
void check_responses_types(recipe::FieldCheck& check, recipe::JsonValue body,
                           const recipe::CodecOptions& options);
// ... and of a list of input items, which may come from a stored conversation too.
void check_item_types(recipe::FieldCheck& check, recipe::JsonValue items, const recipe::Path& at,
                      const recipe::CodecOptions& options);

}  // namespace hadal::openai
