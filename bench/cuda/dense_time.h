#pragma once

#include <cstdint>

#include "compute/backends/cuda/gpu.h"

namespace hadal::cuda {

// Prints the times of the released products and expert layers, for row counts up to `most`.
void time_all(const Gpu& gpu, int64_t most);
// Few launches of the kernels that matter, for a profiler.
void profile(const Gpu& gpu);

}  // namespace hadal::cuda
