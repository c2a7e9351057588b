#pragma once

#include <cstdint>
#include <vector>

namespace hadal::types {

// A way that the output must take, token by token: from its beginning, or from behind the first
// `after` on. It begins at state 0; a state without edges is its end, and what follows is free.
struct TokenPath {
  struct Edge {
    int32_t token = 0;
    uint32_t next = 0;  // state
  };
  int32_t after = -1;  // -1: from the first generated token on
  // While `after` is awaited these may not come (end tokens, other ways out).
  std::vector<int32_t> not_before;
  // Edges of each state, tokens different within one; without cycles.
  std::vector<std::vector<Edge>> states;
};

}  // namespace hadal::types
