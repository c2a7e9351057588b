#pragma once

#include <memory>
#include <span>

#include "compute/backends/cuda/gpu.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

class MixBranch;

// The op set on a GPU: each member calls the launch function of its op. Const after construction.
class CudaOps final : public ops::Ops {
 public:
  // `branch`: of recordings, or null. Outlives the ops.
  CudaOps(const Gpu& gpu, device::Device& device, MixBranch* branch)
      : gpu_(gpu), device_(device), branch_(branch) {}
  std::string_view name() const override { return "cuda"; }

  core::Result<std::unique_ptr<ops::Linear>> make_linear(
      std::span<const ops::WeightSource> stack) override;
  core::Result<std::unique_ptr<ops::Linear>> make_grouped(const ops::WeightSource& source,
                                                          int32_t n_groups) override;
  core::Result<std::unique_ptr<ops::Linear>> make_mix(const ops::WeightSource& source,
                                                      int32_t n_streams) override;
  core::Result<std::unique_ptr<ops::Experts>> make_experts(
      std::span<const ops::ExpertSource> routed, const ops::ExpertSource& shared) override;

  uint64_t workspace_bytes(const Limits& limits) const override;
  void rope(const ops::RopeArgs& args, ops::Stream& stream) override;
  void embed_streams(const ops::EmbedArgs& args, ops::Stream& stream) override;
  void boundary(const ops::BoundaryArgs& args, Scratch scratch, ops::Stream& stream) override;
  void linear(const ops::LinearArgs& args, Scratch scratch, ops::Stream& stream) override;
  void latent_write(const ops::LatentArgs& args, ops::Stream& stream) override;
  void compress(const ops::CompressArgs& args, Scratch scratch, ops::Stream& stream) override;
  void query(const ops::QueryArgs& args, Scratch scratch, ops::Stream& stream) override;
  void index_select(const ops::IndexArgs& args, Scratch scratch, ops::Stream& stream) override;
  void sparse_attend(const ops::AttendArgs& args, Scratch scratch, ops::Stream& stream) override;
  void out_proj(const ops::OutArgs& args, Scratch scratch, ops::Stream& stream) override;
  void route(const ops::RouteArgs& args, ops::Stream& stream) override;
  void moe_ffn(const ops::MoeArgs& args, Scratch scratch, ops::Stream& stream) override;
  void engram_gather(const ops::GatherArgs& args, ops::Stream& stream) override;
  void engram_apply(const ops::EngramArgs& args, ops::Stream& stream) override;
  void final_norm(const ops::FinalArgs& args, ops::Stream& stream) override;
  void commit(const ops::CommitArgs& args, ops::Stream& stream) override;

 private:
  const Gpu gpu_;
  device::Device& device_;
  MixBranch* const branch_;
};

}  // namespace hadal::cuda
