#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// The entries that each row attends to (docs/model.md 3.6). Scores equal the reference's to the
// bit: code products are summed as integers, groups and heads in its order; so lists and pools
// equal its too. Scratch holds the ranks of a tile of rows, 4.5 bytes an entry: at most 64 MiB, or
// one row. rows->max_end bounds what any replay of a captured launch may see.
void launch_index_select(const ops::IndexArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                         cudaStream_t stream);
uint64_t index_select_scratch_bytes(const ops::Ops::Limits& limits);

}  // namespace hadal::cuda
