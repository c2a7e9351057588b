#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// Makes the accepted rows of each sequence its state: rings, open groups, history, length.
void launch_commit(const ops::CommitArgs& args, const Gpu& gpu, cudaStream_t stream);

}  // namespace hadal::cuda
