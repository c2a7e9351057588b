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

ListCall call_of(const WideProduct& p) {
  ListCall call = {};
  call.w = p.weight->view();
  call.x = p.x;
  call.x_blocks = p.x_columns / kBlockK;
  call.tiles = p.tiles;
  call.n_tiles = p.n_tiles;
  call.space = {call.w.n_groups, call.w.n_strips, p.n_rows, false};
  call.y = p.y;
  call.y_stride = p.y_stride;
  call.paired =
      call.w.n % 2 == 0 && p.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.y) % 4 == 0;
  return call;
}

}  // namespace

bool lists_fit(const WideProduct& shared, const WideProduct& routed) {
  return shared.n_rows <= kMostRows && shared.weight->format() == WeightFormat::kFp8Tile &&
         routed.weight->format() == WeightFormat::kFp4Row;
}

void launch_lists(const WideProduct& shared, const WideProduct& routed, const Gpu& gpu,
                  cudaStream_t stream) {
  HADAL_CHECK(shared.y != nullptr && routed.y != nullptr, "experts give bf16");
  HADAL_CHECK(shared.weight->view().n_groups == 1, "there is one shared expert");
  const ListCall one = call_of(shared), two = call_of(routed);
  const int64_t max_jobs = count_wide_jobs(one.space, kListStrips) +
                           int64_t{routed.max_tiles} * strip_jobs(two.w.n_strips, kListStrips);
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(max_jobs, 1, gpu.sm_count));
  constexpr auto kernel =
      lists_kernel<ListShape<WeightFormat::kFp8Tile>, ListShape<WeightFormat::kFp4Row>>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kListSharedBytes);
  launch_overlapped(kernel, dim3(grid), dim3(kListThreads), kListSharedBytes, stream, one, two);
}

}  // namespace hadal::cuda
