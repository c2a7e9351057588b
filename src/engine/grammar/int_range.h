#pragma once

#include <cstdint>

#include "engine/grammar/grammar.h"

namespace hadal::grammar {

// Whole numbers in decimal, without leading zeros: what is read between `from` and the node that is
// returned is in [low, high]. Both within +-(10^15 - 1); low <= high.
uint32_t add_int_range(Grammar& grammar, uint32_t from, int64_t low, int64_t high);

constexpr int64_t kMaxWhole = 999'999'999'999'999;

}  // namespace hadal::grammar
