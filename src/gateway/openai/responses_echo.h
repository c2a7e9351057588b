#pragma once

#include "gateway/recipe/json_value.h"
#include "gateway/recipe/options.h"
#include "gateway/recipe/plan.h"

namespace hadal::openai {

// The fields of a request that the Responses object repeats.
recipe::ResponsesEcho responses_echo(recipe::JsonValue body, const recipe::CodecOptions& options);

// One tool as the object repeats it, known keys only; false if its type is not known. Used for the
// result of a tool search too (`compact`, with the namespace in each tool).
bool append_echoed_tool(std::string& out, recipe::JsonValue tool);

// The tools of a tool search as its result shows them: flat, compact JSON.
std::string found_tools_json(recipe::JsonValue tools);

}  // namespace hadal::openai
