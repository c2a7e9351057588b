#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// The experts of one layer. up: gate rows, then up rows of every expert; down: w2.
class CudaExperts final : public ops::Experts {
 public:
  Packed up, down, shared_up, shared_down;
  int32_t d_inter = 0;
  int32_t d_hidden = 0;
  DeviceBytes meeting;  // a word where the blocks of a launch meet (thin_experts.cu)
  uint64_t bytes() const override {
    return up.bytes() + down.bytes() + shared_up.bytes() + shared_down.bytes();
  }
};

// ops::Ops::make_experts. d_hidden and d_inter are multiples of 32: both inputs are quantised (AQ8)
// whatever the weights' format, as by the reference.
core::Result<std::unique_ptr<ops::Experts>> make_experts(std::span<const ops::ExpertSource> routed,
                                                         const ops::ExpertSource& shared);

uint64_t moe_ffn_scratch_bytes(const ops::Ops::Limits& limits);
// The op just before on the stream may write the routes but not h, which is read while that op
// still runs.
void launch_moe_ffn(const ops::MoeArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                    cudaStream_t stream);

}  // namespace hadal::cuda
