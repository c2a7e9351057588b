#pragma once

#include <cstdint>

namespace hadal::cpu {

// Positions of the `k` largest of score[0, n), ascending, into out; returns how many. Equal scores:
// the lower position wins. -inf and NaN are never chosen. Time O(n).
int64_t select_top(const float* score, int64_t n, int64_t k, int32_t* out);

}  // namespace hadal::cpu
