#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/core/result.h"
#include "engine/grammar/ebnf.h"

namespace hadal::grammar {

// Rewrites rules that call themselves at the beginning of an alternative (`a: a "x" | "y"` becomes
// `a: "y" "x"*`: the same texts). An error: a rule that still calls itself before anything is read,
// by way of others or behind something that may be empty. `by_name`: places in `ebnf.rules`; every
// name is there.
std::optional<core::Error> resolve_left_recursion(Ebnf& ebnf,
                                                  const std::map<std::string, uint32_t>& by_name);

}  // namespace hadal::grammar
