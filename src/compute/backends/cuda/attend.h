#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// Attention of each row over its window and its listed entries (docs/model.md 3.7). Keys are taken
// in the reference's blocks of 64 places with its running maximum, so that a row's bits depend on
// the row alone and differ from the reference's only by the order of f32 sums.
void launch_sparse_attend(const ops::AttendArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                          cudaStream_t stream);
uint64_t sparse_attend_scratch_bytes(const ops::Ops::Limits& limits);

}  // namespace hadal::cuda
