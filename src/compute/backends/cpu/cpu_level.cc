#include "compute/backends/cpu/cpu_level.h"

#include <fmt/format.h>

namespace hadal::cpu {

std::string_view level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::kBase:
      return "base";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvx512:
      return "avx512";
    case CpuLevel::kAvx512Bf16:
      return "avx512bf16";
  }
  return "unknown";
}

// __builtin_cpu_supports asks the operating system's XCR0 too, so that a level whose registers are
// not saved counts as absent.
std::vector<CpuLevel> supported_levels() {
  std::vector<CpuLevel> levels{CpuLevel::kBase};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c") || !__builtin_cpu_supports("bmi2")) {
    return levels;
  }
  levels.push_back(CpuLevel::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512cd")) {
    return levels;
  }
  levels.push_back(CpuLevel::kAvx512);
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni") ||
      !__builtin_cpu_supports("avx512vbmi")) {
    return levels;
  }
  levels.push_back(CpuLevel::kAvx512Bf16);
#endif
  return levels;
}

core::Result<CpuLevel> choose_level(std::string_view name) {
  const std::vector<CpuLevel> levels = supported_levels();
  if (name.empty() || name == "best") return levels.back();
  std::string runs;
  for (const CpuLevel level : levels) {
    if (level_name(level) == name) return level;
    runs += fmt::format("{}{}", runs.empty() ? "" : ", ", level_name(level));
  }
  return core::Error{core::Code::kInvalidRequest,
                     fmt::format("--cpu-level {}: this machine runs {} (best: {})", name, runs,
                                 level_name(levels.back())),
                     "cpu-level"};
}

}  // namespace hadal::cpu
