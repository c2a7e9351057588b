#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace hadal::grammar {

// Several patterns of one string, which merging makes; no schema has this name.
inline constexpr const char* kAllPatterns = "\x01patterns";

// A schema whose valid values are those that are valid under both. Neither may hold a reference or
// a combination of schemas ($ref, allOf, ...), but one of them anyOf, oneOf or not. nullopt:
// `problem` is the keyword that cannot be merged.
std::optional<nlohmann::ordered_json> merge_schemas(const nlohmann::ordered_json& a,
                                                    const nlohmann::ordered_json& b,
                                                    std::string& problem);

}  // namespace hadal::grammar
