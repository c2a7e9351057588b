#pragma once

#include <span>

#include "base/types/request.h"

namespace hadal::sampling {

// Where a sequence stands on its path.
struct PathPlace {
  bool waits = false;  // the path has not begun: TokenPath::not_before may not come
  // What may come next; empty: anything.
  std::span<const types::TokenPath::Edge> edges;
};

// A function of what was generated alone, so that no batch, chunk or draft changes it. Output that
// left the path (a script, another draft) is free.
PathPlace place_on_path(const types::TokenPath& path, std::span<const types::TokenId> generated);

}  // namespace hadal::sampling
