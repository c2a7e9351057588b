#pragma once

#include <nlohmann/json.hpp>

namespace hadal::grammar {

// Is it certain that no value is valid under two of these schemas: other types, other constants, or
// a required property with other constants? References point into `root`.
bool are_disjoint(const nlohmann::ordered_json& branches, const nlohmann::ordered_json& root);

}  // namespace hadal::grammar
