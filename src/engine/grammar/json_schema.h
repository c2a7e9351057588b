#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/core/result.h"
#include "engine/grammar/grammar.h"

namespace hadal::grammar {

// A grammar of JSON texts, each of which is valid under `schema` (JSON Schema 2020-12). It never
// lets an invalid text through; where it is narrower than the schema it says so here:
//   objects     members in the order of `properties`, each once, and no others; without
//   `properties`
//               any names, with values by additionalProperties
//   numbers     at most 15 digits before and 17 behind the point, exponents of 2 digits; between
//               bounds whole ones, and at most 6 digits behind a point between whole ones
//   multipleOf  of integers, up to 1,000, with both bounds or none
//   white space one space, or a line break and up to 16 spaces, where JSON allows any
//   pattern     one spelling of each character; with maxLength at most 4,096 characters
//   format      date, time, date-time, email, hostname, ipv4, ipv6 and uuid are kept to, or fewer
//               texts (string_format.h); others say nothing
//   allOf, and anything beside $ref, anyOf, oneOf, enum or const: made one schema (schema_merge.h);
//               of an enum those values that are spelt as they would be here
//   oneOf       branches that no text can satisfy together (other types, other constants)
// A keyword that it cannot keep to is refused, never passed over: kInvalidRequest names it and its
// place in `param` ("#/properties/a/not"). Keywords that say nothing about validity are skipped.
core::Result<std::shared_ptr<const Grammar>> compile_json_schema(std::string_view schema);

// "#/properties/a" as the end of a request's path: ".properties.a".
std::string request_path(std::string_view pointer);

// Any JSON object.
std::shared_ptr<const Grammar> any_json_object();

}  // namespace hadal::grammar
