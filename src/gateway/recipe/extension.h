#pragma once

#include "gateway/recipe/field_check.h"
#include "gateway/recipe/plan.h"

namespace hadal::recipe {

// Reads the `hadal` object of a body; unknown keys inside are an error.
void read_extension(FieldCheck& check, JsonValue body, const Path& at, Extension& extension);

}  // namespace hadal::recipe
