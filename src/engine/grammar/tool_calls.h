#pragma once

#include <memory>
#include <string_view>

#include "base/core/result.h"
#include "engine/grammar/grammar.h"

namespace hadal::grammar {

// A grammar of the call markup in which the arguments of tools keep to their schemas. `text` is a
// JSON object:
//   tags    {"block", "invoke", "parameter"}: the names of the tags, with their leading space
//   begins  where the output stands when the grammar begins:
//             "marker"  behind `<` and the control token of the block's opening tag
//             "answer"  before the empty line in front of the block
//             "block"   behind the opening of the block
//             "call"    behind the opening of a call of the first tool
//   single  true: one call and no more
//   instead optional: the output may also be a text of this form, from where the grammar begins
//     kind    "object" (any JSON object), "schema" or "regex"; text; path, for errors
//   tools   those that may be called:
//     name
//     path        of the request's field that holds what follows, for errors
//     parameters  a JSON Schema with `properties` (strict tools); absent: any parameters
//     input       {"syntax": "lark" | "gbnf" | "regex" | "", "definition"}: the one parameter
//     `input` is a
//                 text that matches (custom tools); "": any text
// The control token of the markup is read as Grammar::kControl. A string parameter is written as it
// is (string="true"), every other value as JSON; a value that may be a string or something else may
// be written in both ways. Parameters come in the order of `properties`, each at most once.
//
// kInvalidRequest: a schema or grammar that cannot be kept to; `param` is the path in the request.
core::Result<std::shared_ptr<const Grammar>> compile_tool_calls(std::string_view text);

}  // namespace hadal::grammar
