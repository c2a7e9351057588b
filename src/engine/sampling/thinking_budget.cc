#include "engine/sampling/thinking_budget.h"

#include <algorithm>

namespace hadal::sampling {

std::optional<types::TokenId> forced_by_budget(const types::ThinkingBudget& budget,
                                               std::span<const types::TokenId> generated) {
  if (generated.size() < budget.n_tokens || budget.end.empty()) return std::nullopt;
  // From here on `end` is forced, so it is complete at n_tokens + end.size() at the latest: the
  // look does not grow with the answer.
  const auto seen = generated.first(
      std::min<size_t>(generated.size(), size_t{budget.n_tokens} + budget.end.size()));
  if (std::search(seen.begin(), seen.end(), budget.end.begin(), budget.end.end()) != seen.end()) {
    return std::nullopt;
  }
  return budget.end[generated.size() - budget.n_tokens];
}

}  // namespace hadal::sampling
