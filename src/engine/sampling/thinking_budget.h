#pragma once

#include <optional>
#include <span>

#include "base/types/request.h"

namespace hadal::sampling {

// The id that must come next because a think section has used up its budget, if one must. A
// function of what was generated alone: no batch, chunk or draft changes it.
//
// The section is open until `budget.end` has been generated as a whole. Once `budget.n_tokens` ids
// are there and it is still open, the ids of `end` follow one after the other; what the model had
// already written of them is written again.
std::optional<types::TokenId> forced_by_budget(const types::ThinkingBudget& budget,
                                               std::span<const types::TokenId> generated);

}  // namespace hadal::sampling
