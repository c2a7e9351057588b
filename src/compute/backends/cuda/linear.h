#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// A stack of matrices, or a block-diagonal one, in device memory.
class CudaLinear final : public ops::Linear {
 public:
  explicit CudaLinear(Packed packed) : packed_(std::move(packed)) {}
  int64_t n() const override { return packed_.view().n; }  // of one group
  int64_t k() const override { return packed_.view().k; }
  uint64_t bytes() const override { return packed_.bytes(); }
  const Packed& packed() const { return packed_; }

 private:
  Packed packed_;
};

// ops::Ops::make_linear and make_grouped. Every matrix of a stack of FP8 but the last has a
// multiple of 16 outputs; groups have a multiple of 32 inputs (and outputs, for FP8).
core::Result<std::unique_ptr<ops::Linear>> make_linear(std::span<const ops::WeightSource> stack);
core::Result<std::unique_ptr<ops::Linear>> make_grouped(const ops::WeightSource& source,
                                                        int32_t n_groups);

uint64_t linear_scratch_bytes(const ops::Ops::Limits& limits);
void launch_linear(const ops::LinearArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                   cudaStream_t stream);

}  // namespace hadal::cuda
