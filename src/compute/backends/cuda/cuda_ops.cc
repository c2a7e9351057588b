#include "compute/backends/cuda/cuda_ops.h"

#include <algorithm>

#include "compute/backends/cuda/attend.h"
#include "compute/backends/cuda/boundary.h"
#include "compute/backends/cuda/cuda_device.h"
#include "compute/backends/cuda/experts.h"
#include "compute/backends/cuda/index.h"
#include "compute/backends/cuda/kv_write.h"
#include "compute/backends/cuda/linear.h"
#include "compute/backends/cuda/out_proj.h"
#include "compute/backends/cuda/rows_ops.h"
#include "compute/backends/cuda/state.h"

namespace hadal::cuda {

core::Result<std::unique_ptr<ops::Linear>> CudaOps::make_linear(
    std::span<const ops::WeightSource> stack) {
  return cuda::make_linear(stack);
}
core::Result<std::unique_ptr<ops::Linear>> CudaOps::make_grouped(const ops::WeightSource& source,
                                                                 int32_t n_groups) {
  return cuda::make_grouped(source, n_groups);
}
core::Result<std::unique_ptr<ops::Linear>> CudaOps::make_mix(const ops::WeightSource& source,
                                                             int32_t n_streams) {
  return cuda::make_mix(source, n_streams, device_);
}
core::Result<std::unique_ptr<ops::Experts>> CudaOps::make_experts(
    std::span<const ops::ExpertSource> routed, const ops::ExpertSource& shared) {
  return cuda::make_experts(routed, shared);
}

// Ops run one after the other, so that they share one area. compress and query hand what they do
// not use themselves to a product.
uint64_t CudaOps::workspace_bytes(const Limits& limits) const {
  const uint64_t product = linear_scratch_bytes(limits);
  return std::max({product, boundary_scratch_bytes(limits), out_proj_scratch_bytes(limits),
                   moe_ffn_scratch_bytes(limits), compress_scratch_bytes(limits) + product,
                   query_scratch_bytes(limits) + product, index_select_scratch_bytes(limits),
                   sparse_attend_scratch_bytes(limits)});
}

void CudaOps::rope(const ops::RopeArgs& args, ops::Stream& stream) {
  launch_rope(args, gpu_, raw(stream));
}
void CudaOps::embed_streams(const ops::EmbedArgs& args, ops::Stream& stream) {
  launch_embed_streams(args, gpu_, raw(stream));
}
void CudaOps::boundary(const ops::BoundaryArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_boundary(args, scratch, gpu_, branch_, raw(stream));
}
void CudaOps::linear(const ops::LinearArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_linear(args, scratch, gpu_, raw(stream));
}
void CudaOps::latent_write(const ops::LatentArgs& args, ops::Stream& stream) {
  launch_latent_write(args, gpu_, raw(stream));
}
void CudaOps::compress(const ops::CompressArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_compress(args, scratch, gpu_, raw(stream));
}
void CudaOps::query(const ops::QueryArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_query(args, scratch, gpu_, raw(stream));
}
void CudaOps::index_select(const ops::IndexArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_index_select(args, scratch, gpu_, raw(stream));
}
void CudaOps::sparse_attend(const ops::AttendArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_sparse_attend(args, scratch, gpu_, raw(stream));
}
void CudaOps::out_proj(const ops::OutArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_out_proj(args, scratch, gpu_, raw(stream));
}
void CudaOps::route(const ops::RouteArgs& args, ops::Stream& stream) {
  launch_route(args, gpu_, raw(stream));
}
void CudaOps::moe_ffn(const ops::MoeArgs& args, Scratch scratch, ops::Stream& stream) {
  launch_moe_ffn(args, scratch, gpu_, raw(stream));
}
void CudaOps::engram_gather(const ops::GatherArgs& args, ops::Stream& stream) {
  launch_engram_gather(args, gpu_, raw(stream));
}
void CudaOps::engram_apply(const ops::EngramArgs& args, ops::Stream& stream) {
  launch_engram_apply(args, gpu_, raw(stream));
}
void CudaOps::final_norm(const ops::FinalArgs& args, ops::Stream& stream) {
  launch_final_norm(args, gpu_, raw(stream));
}
void CudaOps::commit(const ops::CommitArgs& args, ops::Stream& stream) {
  launch_commit(args, gpu_, raw(stream));
}

}  // namespace hadal::cuda
