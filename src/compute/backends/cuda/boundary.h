#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/mix_branch.h"
#include "compute/device/device.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// hc_*_fn on the device: packed for the tensor cores (mix_pack.h) or as the checkpoint has it.
class CudaMix final : public ops::Linear {
 public:
  CudaMix(device::Buffer weights, int64_t n, int64_t k, bool packed)
      : weights_(std::move(weights)), n_(n), k_(k), packed_(packed) {}
  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  uint64_t bytes() const override { return weights_.size(); }
  bool packed() const { return packed_; }
  const std::byte* data() const { return weights_.data(); }

 private:
  device::Buffer weights_;
  int64_t n_, k_;
  bool packed_;
};

// Packs on the host and copies; returns when the copy is done.
core::Result<std::unique_ptr<ops::Linear>> make_mix(const ops::WeightSource& source,
                                                    int32_t n_streams, device::Device& device);

// Three kernels: the sub-layer's input, which needs only the pre of the site before; then the
// product and the end of the mix of the coming site. Rows of streams, y, h and tap must begin at
// multiples of 16 bytes when the shape is a packed one. With a `branch` (or null) that serves the
// stream, product and end of the mix of up to kBranchRows rows go there.
void launch_boundary(const ops::BoundaryArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                     MixBranch* branch, cudaStream_t stream);
uint64_t boundary_scratch_bytes(const ops::Ops::Limits& limits);

inline constexpr int32_t kBranchRows = 256;
// Of a branch, for every packed shape.
uint64_t branch_scratch_bytes();

}  // namespace hadal::cuda
