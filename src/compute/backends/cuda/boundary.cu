#include <algorithm>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/boundary.h"
#include "compute/backends/cuda/boundary_mix.cuh"
#include "compute/backends/cuda/boundary_plain.cuh"
#include "compute/backends/cuda/boundary_rows.cuh"
#include "compute/backends/cuda/scratch.h"

// Hyper-connections between two sub-layers (docs/model.md 3.3).
namespace hadal::cuda {
namespace {

BoundaryTerms terms_of(const ops::BoundaryArgs& a, ops::Ops::Scratch scratch, const Gpu& gpu) {
  BoundaryTerms p = {};
  p.overlap = gpu.overlap;
  p.c = a.n_streams;
  p.d = a.d_hidden;
  p.n_rows = a.n_rows;
  p.n_expand = a.n_expand;
  p.streams = a.streams;
  p.y = a.y.data;
  p.y_stride = a.y.stride;
  p.post = a.post;
  p.comb = a.comb;
  p.tap = a.tap.data;
  p.tap_stride = a.tap.stride;
  p.pre_in = a.pre_in;
  p.norm = a.norm;
  p.h = a.h.data;
  p.h_stride = a.h.stride;
  p.pre = a.pre;
  p.sinkhorn_iters = a.sinkhorn_iters;
  p.hc_eps = a.hc_eps;
  p.norm_eps = a.norm_eps;
  if (a.site.fn == nullptr || a.n_mix == 0) return p;
  const auto& mix = static_cast<const CudaMix&>(*a.site.fn);
  HADAL_CHECK(
      mix.packed() == mix_is_packed(a.n_streams, a.d_hidden) && mix.k() == a.n_streams * a.d_hidden,
      "a mix of another shape");
  p.n_mix = a.n_mix;
  p.mix = mix.data();
  p.base = a.site.base;
  p.scale = a.site.scale;
  if (!mix.packed()) return p;
  const MixShape shape{a.d_hidden};
  ScratchCutter cut(scratch);
  p.squares = cut.take<float>(p.n_mix);
  p.partial = cut.take<float>(int64_t{p.n_tiles()} * shape.n_groups() * MixShape::kParts *
                              kTileRows * MixShape::kOutputs);
  return p;
}

bool aligned(const void* p, int64_t stride) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride * 2 % 16 == 0;
}

void launch_rows(const BoundaryTerms& p, int64_t n, const Gpu& gpu, cudaStream_t stream) {
  HADAL_CHECK(aligned(p.streams, p.d) && aligned(p.y, p.y_stride) && aligned(p.h, p.h_stride) &&
                  aligned(p.tap, p.tap_stride) && aligned(p.norm, 0),
              "a boundary's rows begin at multiples of 16 bytes");
  // Up to here a cluster per row is faster: one row is spread over eight multiprocessors.
  constexpr int64_t kFewRows = 64;
  if (n > kFewRows) {
    const int64_t blocks = std::min<int64_t>(n, std::max(1, gpu.sm_count));
    launch_following(p.overlap, 1, boundary_block_kernel, dim3(static_cast<unsigned>(blocks)),
                     dim3(kBlockThreads), 0, stream, p, n);
    return;
  }
  const auto slices = static_cast<unsigned>(MixShape{p.d}.n_slices());
  launch_following(p.overlap, slices, boundary_cluster_kernel,
                   dim3(static_cast<unsigned>(n) * slices), dim3(kClusterThreads), 0, stream, p);
}

// Both start while the kernel before still runs, and wait in the kernel: the first has fetched its
// weights by then. At the begin of a branch the first one waits for all of the kernel before it.
void launch_mix(const BoundaryTerms& p, bool overlap, const Gpu& gpu, cudaStream_t stream) {
  const MixShape shape{p.d};
  const int n_parts = shape.n_groups() * MixShape::kParts;
  // A tile a block, until every multiprocessor has as many blocks as shared memory has room for.
  const int full = std::max(1, 4 * gpu.sm_count / n_parts);
  const bool many = p.n_tiles() > full;
  launch_following(
      overlap, 1, many ? boundary_mix_kernel<true> : boundary_mix_kernel<false>,
      dim3(static_cast<unsigned>(n_parts), static_cast<unsigned>(many ? full : p.n_tiles())),
      dim3(32 * static_cast<unsigned>(many ? kManyTilesWarps : kFewTilesWarps)), kMixSmem, stream,
      p, shape);
  launch_overlapped(boundary_finish_kernel,
                    dim3(static_cast<unsigned>((p.n_mix + kFinishRows - 1) / kFinishRows)),
                    dim3(kFinishRows * 32), 0, stream, p, shape);
}

}  // namespace

core::Result<std::unique_ptr<ops::Linear>> make_mix(const ops::WeightSource& source,
                                                    int32_t n_streams, device::Device& device) {
  HADAL_CHECK(source.format == ops::WeightFormat::kF32 && n_streams >= 1 &&
                  n_streams <= kPlainStreams && source.k % n_streams == 0 &&
                  source.n == 2 * n_streams + n_streams * n_streams,
              "hc fn");
  const bool packed = mix_is_packed(n_streams, source.k / n_streams);
  const auto n_values = static_cast<size_t>(source.n * source.k);
  std::vector<uint16_t> units;
  if (packed) {
    units = pack_mix({source.k / n_streams},
                     std::span(static_cast<const float*>(source.weight), n_values));
  }
  const void* from = packed ? static_cast<const void*>(units.data()) : source.weight;
  const uint64_t bytes = packed ? units.size() * sizeof(uint16_t) : n_values * sizeof(float);
  HADAL_TRY(device::Buffer weights, device.allocate(bytes, device::Memory::kDevice));
  HADAL_TRY(const std::unique_ptr<device::Stream> stream, device.make_stream());
  device.copy(*stream, weights.data(), from, bytes);
  HADAL_TRY_VOID(stream->synchronize());
  return std::unique_ptr<ops::Linear>(
      std::make_unique<CudaMix>(std::move(weights), source.n, source.k, packed));
}

uint64_t boundary_scratch_bytes(const ops::Ops::Limits& limits) {
  if (!mix_is_packed(MixShape::kStreams, limits.d_hidden)) return 0;
  const uint64_t tiles = (static_cast<uint64_t>(limits.max_rows) + kTileRows - 1) / kTileRows;
  const auto parts = static_cast<uint64_t>(MixShape{limits.d_hidden}.n_groups()) * MixShape::kParts;
  return scratch_padded(static_cast<uint64_t>(limits.max_rows) * 4) +
         scratch_padded(tiles * parts * kTileRows * MixShape::kOutputs * 4);
}

uint64_t branch_scratch_bytes() {
  ops::Ops::Limits widest;
  widest.max_rows = kBranchRows;
  widest.d_hidden = MixShape::kMaxSlices * MixShape::kSliceChannels;
  return boundary_scratch_bytes(widest);
}

void launch_boundary(const ops::BoundaryArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                     MixBranch* branch, cudaStream_t stream) {
  HADAL_CHECK(args.n_streams >= 1 && args.n_streams <= kPlainStreams, "hc_mult above 8");
  const bool forks = branch != nullptr && branch->serves(stream) && args.n_mix <= kBranchRows;
  const BoundaryTerms p = terms_of(args, forks ? branch->scratch() : scratch, gpu);
  const int64_t n = std::max({p.n_rows, p.n_expand, p.n_mix});
  if (n == 0) return;
  if (branch != nullptr) branch->join(stream);
  if (!mix_is_packed(args.n_streams, args.d_hidden)) {
    boundary_plain_kernel<<<static_cast<unsigned>(n), kPlainThreads, 0, stream>>>(p);
    return;
  }
  // Behind a join there are two kernels in front, and the rows' kernel waits for both.
  launch_rows(p, n, gpu, stream);
  if (p.mix == nullptr) return;
  if (!forks) return launch_mix(p, true, gpu, stream);
  launch_mix(p, false, gpu, branch->fork(stream));
  branch->end();
}

}  // namespace hadal::cuda
