#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// What a layer writes to the cache, and its queries (docs/model.md 3.4 to 3.6). Everything but the
// matrix products keeps the reference's order, so that records are equal to the bit for equal
// products. Shapes: widths are multiples of 32; latents and q_lora up to 8,192, d_head up to 6,144.
void launch_latent_write(const ops::LatentArgs& args, const Gpu& gpu, cudaStream_t stream);

// Both give the rest of their scratch to launch_linear: a workspace needs these bytes and the
// linear's.
void launch_compress(const ops::CompressArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                     cudaStream_t stream);
uint64_t compress_scratch_bytes(const ops::Ops::Limits& limits);

void launch_query(const ops::QueryArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                  cudaStream_t stream);
uint64_t query_scratch_bytes(const ops::Ops::Limits& limits);

}  // namespace hadal::cuda
