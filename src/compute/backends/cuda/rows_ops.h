#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// Ops that move or scale rows: no matrix product, no cache. All give the reference's bits for equal
// inputs.
void launch_rope(const ops::RopeArgs& args, const Gpu& gpu, cudaStream_t stream);
void launch_embed_streams(const ops::EmbedArgs& args, const Gpu& gpu, cudaStream_t stream);
void launch_route(const ops::RouteArgs& args, const Gpu& gpu, cudaStream_t stream);
void launch_engram_gather(const ops::GatherArgs& args, const Gpu& gpu, cudaStream_t stream);
void launch_engram_apply(const ops::EngramArgs& args, const Gpu& gpu, cudaStream_t stream);
void launch_final_norm(const ops::FinalArgs& args, const Gpu& gpu, cudaStream_t stream);

}  // namespace hadal::cuda
