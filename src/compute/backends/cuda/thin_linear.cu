#include <algorithm>

#include "base/core/check.h"
#include "compute/backends/cuda/thin.cuh"
#include "compute/backends/cuda/thin.h"

namespace hadal::cuda {
namespace {

using ops::WeightFormat;

struct Call {
  ThinJob job;
  const uint16_t* x;
  int64_t x_stride;
  bool aligned;
  int32_t n_rows;
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
};

// Shared memory: barriers, partial sums, rings, x.
template <class Piece, bool kDeep>
struct Shared {
  static constexpr int kStages = kDeep ? 4 : 2;
  static constexpr int kBarriers = kSlices * kStages * 8;
  static constexpr int kPartial = 2 * kSlices * 128 * 4;
  static constexpr int kRing = kStages * Piece::kBytes;
  static constexpr int kFixed = kBarriers + kPartial + kSlices * kRing;
};

template <class Piece, bool kDeep, bool kQuantise>
__global__ void __launch_bounds__(kThinThreads, kDeep ? 2 : 3)
    thin_linear_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  using Layout = Shared<Piece, kDeep>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int kStages = Layout::kStages;
  auto* barriers = reinterpret_cast<uint64_t*>(shared) + warp * kStages;
  auto* partial = reinterpret_cast<float*>(shared + Layout::kBarriers);
  uint8_t* rings = shared + Layout::kBarriers + Layout::kPartial;
  auto* x = reinterpret_cast<uint16_t*>(rings + kSlices * Layout::kRing);
  const PackedView& w = call.job.w;
  if (lane == 0) {
    for (int i = 0; i < kStages; ++i) barrier_init(barriers + i, 1);
    barrier_init_done();
  }
  __syncwarp();

  const int64_t n_units = static_cast<int64_t>(call.job.tile_units) * w.n_groups;
  const int first = unit_begin(n_units, blockIdx.x, gridDim.x);
  const int last = unit_begin(n_units, blockIdx.x + 1, gridDim.x);
  ThinStream<ThinCursor<Piece>, ThinCursor<Piece>, kStages> stream;
  stream.stages = rings + warp * Layout::kRing;
  stream.barriers = barriers;
  stream.stage_bytes = Piece::kBytes;
  stream.a.start(&call.job, nullptr, first, last, warp);
  stream.fill(lane);
  wait_for_previous();
  let_next_start();

  const int columns = w.n_blocks * kBlockK;
  int n_done = 0;
  thin_units<Piece>(
      stream, call.job, first, last, partial, n_done,
      [&](int group) {
        const uint16_t* from = call.x + static_cast<int64_t>(group) * w.k;
        __syncthreads();
        load_thin_x<kQuantise>(x, call.n_rows, w.k, columns, call.aligned,
                               [&](int row) { return from + row * call.x_stride; });
        __syncthreads();
        return ThinTile{x + lane / 4 * thin_x_stride(columns), call.n_rows};
      },
      [&](int group, int strip, int out, int row, const float(&total)[1]) {
        const int column = strip * kStripRows + out;
        if (column >= w.n) return;
        const float v = total[0] * w.out_scale[group];
        const int64_t at = row * call.y_stride + static_cast<int64_t>(group) * w.n + column;
        if (call.y_f32 != nullptr) {
          call.y_f32[at] = v;
        } else {
          call.y[at] = bf16_from_float(v);
        }
      });
}

// Pieces that divide the slices of the released matrices (20, 5; 32, 24, 16 blocks).
using Fp8By5 = ThinPiece<WeightFormat::kFp8Tile, 1, 5>;
using Fp8By4 = ThinPiece<WeightFormat::kFp8Tile, 1, 4>;
using Fp4 = ThinPiece<WeightFormat::kFp4Row, 1, 5>;
using Bf16 = ThinPiece<WeightFormat::kBf16, 1, 2>;

bool by_5(const PackedView& w) {
  return w.n_blocks % (5 * kSlices) == 0;
}

template <class Piece>
ThinPlan plan_of(const PackedView& w, int64_t n_rows, const Gpu& gpu) {
  const auto x_bytes = static_cast<size_t>(n_rows * thin_x_stride(w.n_blocks * kBlockK) * 2);
  const size_t deep = Shared<Piece, true>::kFixed + x_bytes;
  const bool coded = Piece::kFormat != WeightFormat::kBf16;
  return plan_thin(static_cast<int64_t>(w.n_strips) * w.n_groups,
                   coded ? Shared<Piece, false>::kFixed + x_bytes : deep, deep, gpu);
}

template <class Piece, bool kDeep, bool kQuantise>
void launch(const Call& call, const ThinPlan& plan, const Gpu& gpu, cudaStream_t stream) {
  const int64_t n_units = static_cast<int64_t>(call.job.tile_units) * call.job.w.n_groups;
  const auto grid =
      static_cast<unsigned>(std::min<int64_t>(n_units, gpu.sm_count * plan.blocks_per_sm));
  const auto kernel = thin_linear_kernel<Piece, kDeep, kQuantise>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(plan.shared_bytes));
  launch_overlapped(kernel, dim3(grid), dim3(kThinThreads), plan.shared_bytes, stream, call);
}
template <class Piece>
void launch(const Call& call, bool quantise, const Gpu& gpu, cudaStream_t stream) {
  const ThinPlan plan = plan_of<Piece>(call.job.w, call.n_rows, gpu);
  if constexpr (Piece::kFormat == WeightFormat::kBf16) {
    launch<Piece, true, false>(call, plan, gpu, stream);
  } else if (plan.deep) {
    if (quantise) {
      launch<Piece, true, true>(call, plan, gpu, stream);
    } else {
      launch<Piece, true, false>(call, plan, gpu, stream);
    }
  } else if (quantise) {
    launch<Piece, false, true>(call, plan, gpu, stream);
  } else {
    launch<Piece, false, false>(call, plan, gpu, stream);
  }
}

}  // namespace

bool thin_linear_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu) {
  if (gpu.cc_major < 9 || n_rows > kThinRows) return false;
  const PackedView& w = weight.view();
  const auto fits = [&](const ThinPlan& plan) { return plan.shared_bytes <= gpu.smem_optin; };
  switch (weight.format()) {
    case WeightFormat::kFp4Row:
      return fits(plan_of<Fp4>(w, n_rows, gpu));
    case WeightFormat::kFp8Tile:
      return fits(by_5(w) ? plan_of<Fp8By5>(w, n_rows, gpu) : plan_of<Fp8By4>(w, n_rows, gpu));
    case WeightFormat::kBf16:
      return fits(plan_of<Bf16>(w, n_rows, gpu));
    case WeightFormat::kF32:
      break;
  }
  return false;
}

void launch_thin_linear(const Packed& weight, device::Matrix<const uint16_t> x, bool quantise,
                        uint16_t* y, float* y_f32, int64_t y_stride, const Gpu& gpu,
                        cudaStream_t stream) {
  Call call = {};
  call.job.w = weight.view();
  call.job.tile_units = weight.view().n_strips;
  call.x = x.data;
  call.x_stride = x.stride;
  call.aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0 &&
                 weight.view().k % 8 == 0;
  call.n_rows = static_cast<int32_t>(x.n_rows);
  call.y = y;
  call.y_f32 = y_f32;
  call.y_stride = y_stride;
  switch (weight.format()) {
    case WeightFormat::kFp4Row:
      launch<Fp4>(call, quantise, gpu, stream);
      break;
    case WeightFormat::kFp8Tile:
      if (by_5(call.job.w)) {
        launch<Fp8By5>(call, quantise, gpu, stream);
      } else {
        launch<Fp8By4>(call, quantise, gpu, stream);
      }
      break;
    case WeightFormat::kBf16:
      launch<Bf16>(call, quantise, gpu, stream);
      break;
    case WeightFormat::kF32:
      HADAL_CHECK(false, "f32 weights have no strips");
  }
}

}  // namespace hadal::cuda
