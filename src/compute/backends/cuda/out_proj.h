#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

uint64_t out_proj_scratch_bytes(const ops::Ops::Limits& limits);
void launch_out_proj(const ops::OutArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                     cudaStream_t stream);

}  // namespace hadal::cuda
