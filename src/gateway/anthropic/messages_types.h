#pragma once

#include "gateway/recipe/field_check.h"
#include "gateway/recipe/options.h"

namespace hadal::anthropic {

// The types of every field of a Messages body that is read later.
void check_messages_types(recipe::FieldCheck& check, recipe::JsonValue body,
                          const recipe::CodecOptions& options);

}  // namespace hadal::anthropic
