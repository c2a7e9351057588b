#pragma once

#include <cstdint>
#include <optional>

#include "engine/step/step_runner.h"

namespace hadal::step {

// Where a sequence with `hit` cached tokens goes on.
struct ResumePoint {
  Begin kind = Begin::kEmpty;
  uint32_t start = 0;         // first row to run
  uint32_t window_floor = 0;  // no window looks below
  uint32_t write_from = 0;    // blocks before are there already and are not written
};

// `depth`: rows from this position on run every layer. `snapshot`: position of the best state kept
// at or below the hit, if any. `unit`: positions to start at are multiples of it.
// Exact: the latest start from which every window that a later row looks at is whole.
ResumePoint plan_resume(const WindowShape& windows, uint32_t hit, uint32_t depth,
                        std::optional<uint32_t> snapshot, uint32_t unit);

}  // namespace hadal::step
