#pragma once

#include <string>

#include "gateway/recipe/json_value.h"

namespace hadal::recipe {

// What keeps `schema` from being a JSON Schema (keywords of the wrong type, a reference that leads
// nowhere or out of the document, a pattern that is no regular expression); "" if nothing.
std::string schema_problem(JsonValue schema);

// Rewrites a schema into the closed form of strict tools and strict response formats
// (docs/recipe.md, "Strict schemas"): every property required, nothing additional, unknown keywords
// dropped. `top_level_tool`: the parameters of a tool, which may have no properties. On failure
// `problem` says why; `is_shape` if the schema breaks a rule of the closed form rather than its
// types.
struct StrictSchema {
  std::string text;
  std::string problem;
  bool is_shape = false;
};
StrictSchema strict_schema(JsonValue schema, bool top_level_tool);

}  // namespace hadal::recipe
