#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/core/result.h"

namespace hadal::cpu {

// Instruction-set levels, each a superset of the one before. Kernels are compiled once per level
// (files *_avx2.cc and so on) and give the same bits on every level, see linear.h.
enum class CpuLevel : uint8_t { kBase, kAvx2, kAvx512, kAvx512Bf16 };

std::string_view level_name(CpuLevel level);

// The levels that this machine runs, lowest first; never empty.
std::vector<CpuLevel> supported_levels();

// "" or "best": the highest supported level. A known level that this machine lacks, and an unknown
// name, are kInvalidRequest with the list of those that it runs.
core::Result<CpuLevel> choose_level(std::string_view name);

}  // namespace hadal::cpu
