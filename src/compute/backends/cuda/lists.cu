#include <algorithm>

#include "base/core/check.h"
#include "compute/backends/cuda/lists.cuh"
#include "compute/backends/cuda/lists.h"

namespace hadal::cuda {
namespace {

using ops::WeightFormat;

// Of the shared expert. With more rows its product fills the GPU by itself, and the routed experts
// have so many rows that the tensor cores bind them.
constexpr int32_t kMostRows = 1024;

ListCall call_of(const WideProduct& p, int32_t strips) {
  ListCall call = {};
  call.w = p.weight->view();
  call.x = p.x;
  call.x_blocks = p.x_columns / kBlockK;
  call.tiles = p.tiles;
  call.n_tiles = p.n_tiles;
  call.space = {call.w.n_groups, call.w.n_strips, p.n_rows, false};
  call.strips = strips;
  call.y = p.y;
  call.y_stride = p.y_stride;
  call.paired =
      call.w.n % 2 == 0 && p.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.y) % 4 == 0;
  return call;
}

template <int kSharedBlocks, int kRoutedBlocks>
void launch(const ListCall& one, const ListCall& two, int64_t max_jobs, const Gpu& gpu,
            cudaStream_t stream) {
  using S = ListShape<WeightFormat::kFp8Tile, kSharedBlocks>;
  using T = ListShape<WeightFormat::kFp4Row, kRoutedBlocks, S::kStageBytes>;
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(max_jobs, 1, gpu.sm_count));
  cudaFuncSetAttribute(lists_kernel<S, T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       S::kSharedBytes);
  launch_overlapped(lists_kernel<S, T>, dim3(grid), dim3(kListThreads), S::kSharedBytes, stream,
                    one, two);
}

}  // namespace

bool lists_fit(const WideProduct& shared, const WideProduct& routed) {
  return shared.n_rows <= kMostRows && shared.weight->format() == WeightFormat::kFp8Tile &&
         routed.weight->format() == WeightFormat::kFp4Row;
}

void launch_lists(const WideProduct& shared, const WideProduct& routed, const Gpu& gpu,
                  cudaStream_t stream) {
  HADAL_CHECK(shared.y != nullptr && routed.y != nullptr, "experts give bf16");
  // A strip of FP8 has the bytes of two of FP4.
  const ListCall one = call_of(shared, kListStrips / 2), two = call_of(routed, kListStrips);
  const int64_t max_jobs = count_wide_jobs(one.space, one.strips) +
                           int64_t{routed.max_tiles} * strip_jobs(two.w.n_strips, two.strips);
  // Stages that divide the slices of the released matrices (20 blocks up, 9 down).
  const auto divides = [&](int blocks) { return two.w.n_blocks % (kSlices * blocks) == 0; };
  if (!divides(5) && divides(3)) {
    launch<3, 3>(one, two, max_jobs, gpu, stream);
  } else {
    launch<4, 5>(one, two, max_jobs, gpu, stream);
  }
}

}  // namespace hadal::cuda
