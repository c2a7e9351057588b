#pragma once

#include <memory>
#include <vector>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/sampler_kernel.h"
#include "compute/device/device.h"
#include "compute/ops/sampler.h"

namespace hadal::cuda {

// The next token of each row on the GPU. What rows ask for goes with the launch, or, where there is
// much of it, is packed on the host and copied in one piece; room for edits grows with what
// requests bring, up to the vocabulary per row. Results are written to host memory.
class CudaSampler final : public ops::Sampler {
 public:
  // kInvalidRequest if a block's slice of the vocabulary does not fit its shared memory.
  static core::Result<std::unique_ptr<ops::Sampler>> make(const ops::SamplerShape& shape,
                                                          const Gpu& gpu, device::Device& device);

  void clear(int32_t slot, device::Stream& stream) override;
  core::Status count(int32_t slot, std::span<const int32_t> tokens, bool output,
                     device::Stream& stream) override;
  core::Status sample(device::Matrix<const float> logits, std::span<const ops::SampleRow> rows,
                      device::Stream& stream) override;
  std::span<const ops::SampledToken> results() const override;

 private:
  CudaSampler(const ops::SamplerShape& shape, device::Device& device)
      : shape_(shape), device_(device) {}
  core::Status reserve(device::Buffer& buffer, uint64_t bytes, device::Stream& stream);
  void pack(std::span<const ops::SampleRow> rows);

  const ops::SamplerShape shape_;
  device::Device& device_;
  device::Buffer counts_;           // [n_slots, n_vocab] u32
  device::Buffer step_;             // terms, edits, words of the last call
  device::Buffer tokens_;           // TokenCount of the last count()
  device::Buffer out_;              // [max_rows] SampledToken, host memory that kernels write to
  std::vector<SampleTerms> terms_;  // of the last call
  std::vector<LogitEdit> edits_;
  std::vector<uint32_t> words_;
  std::vector<std::byte> packed_;
  std::vector<TokenCount> counted_;
  int32_t n_rows_ = 0, n_streamed_ = 0;
};

}  // namespace hadal::cuda
