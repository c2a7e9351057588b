#include "engine/sampling/token_path.h"

#include <algorithm>

namespace hadal::sampling {

PathPlace place_on_path(const types::TokenPath& path, std::span<const types::TokenId> generated) {
  if (path.after >= 0) {
    const auto begin = std::find(generated.begin(), generated.end(), path.after);
    if (begin == generated.end()) return {.waits = true, .edges = {}};
    generated = generated.subspan(static_cast<size_t>(begin - generated.begin()) + 1);
  }
  uint32_t state = 0;
  for (const types::TokenId token : generated) {
    const auto& edges = path.states[state];
    const auto edge = std::find_if(edges.begin(), edges.end(),
                                   [&](const auto& one) { return one.token == token; });
    if (edge == edges.end()) return {};  // at the end, or off the path
    state = edge->next;
  }
  return {.waits = false, .edges = path.states[state]};
}

}  // namespace hadal::sampling
