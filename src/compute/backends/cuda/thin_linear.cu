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
  int32_t stages;
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
};

// Groups that the units of a block touch, at most.
int64_t groups_of_block(const PackedView& w, int64_t n_blocks) {
  const int64_t units = static_cast<int64_t>(w.n_strips) * w.n_groups;
  const int64_t part = (units + n_blocks - 1) / n_blocks;
  return std::min<int64_t>(w.n_groups, (part + w.n_strips - 2) / w.n_strips + 1);
}

// Shared memory: barriers, sums of the teams, rings, x of the groups that the block has units of.
template <class Piece, bool kQuantise>
__global__ void __launch_bounds__(kMaxTeams* kThinThreads, 1)
    thin_linear_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int lane = threadIdx.x % 32, team = threadIdx.x / kThinThreads;
  const int n_warps = blockDim.x / 32, n_teams = n_warps / kSlices;
  const int sum_bytes = thin_sum_bytes(Piece::kStrips, call.n_rows);
  uint8_t* sums = shared + thin_barrier_bytes(n_warps, call.stages);
  uint8_t* rings = sums + n_teams * sum_bytes;
  auto* x = reinterpret_cast<uint16_t*>(rings + n_warps * call.stages * Piece::kBytes);
  const PackedView& w = call.job.w;
  const int64_t n_units = static_cast<int64_t>(call.job.tile_units) * w.n_groups;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * n_teams, of = gridDim.x * n_teams;
  const int2 units =
      make_int2(unit_begin(n_units, at + team, of), unit_begin(n_units, at + team + 1, of));
  ThinStream<Piece::kStrips> stream(&call.job, &units, nullptr, shared, rings, call.stages,
                                    Piece::kBytes);
  stream.fill(1);
  wait_for_previous();
  let_next_start();

  const int columns = w.n_blocks * kBlockK, stride = thin_x_stride(columns);
  const int first_group = unit_begin(n_units, at, of) / call.job.tile_units;
  const int last_group = (unit_begin(n_units, at + n_teams, of) - 1) / call.job.tile_units;
  for (int group = first_group; group <= last_group; ++group) {
    const uint16_t* from = call.x + static_cast<int64_t>(group) * w.k;
    load_thin_x<kQuantise>(x + (group - first_group) * call.n_rows * stride, call.n_rows, w.k,
                           columns, call.aligned,
                           [&](int row) { return from + row * call.x_stride; });
  }
  __syncthreads();
  int n_done = 0;
  thin_units<Piece>(
      stream, 1, call.job, units, reinterpret_cast<float*>(sums + team * sum_bytes), call.n_rows,
      n_done,
      [&](int group) {
        return ThinTile{x + ((group - first_group) * call.n_rows + lane / 4) * stride, call.n_rows};
      },
      [&](int group, int strip, int out, int row, const float(&total)[1]) {
        const int column = strip * kStripRows + out;
        if (column >= w.n) return;
        const float v = total[0] * w.out_scale[group];
        const int64_t place = row * call.y_stride + static_cast<int64_t>(group) * w.n + column;
        if (call.y_f32 != nullptr) {
          call.y_f32[place] = v;
        } else {
          call.y[place] = bf16_from_float(v);
        }
      });
}

// Pieces that divide the slices of the released matrices (20, 5; 32, 24, 16 blocks).
using Fp8By10 = ThinPiece<WeightFormat::kFp8Tile, 1, 10, 5>;
using Fp8By5 = ThinPiece<WeightFormat::kFp8Tile, 1, 5>;
using Fp8By8 = ThinPiece<WeightFormat::kFp8Tile, 1, 8, 4>;
using Fp8By4 = ThinPiece<WeightFormat::kFp8Tile, 1, 4>;
using Fp4 = ThinPiece<WeightFormat::kFp4Row, 1, 5>;
using Bf16 = ThinPiece<WeightFormat::kBf16, 1, 2>;

template <class Piece>
ThinPlan plan_of(const PackedView& w, int64_t n_rows, const Gpu& gpu) {
  const int64_t units = static_cast<int64_t>(w.n_strips) * w.n_groups;
  const auto row_bytes = static_cast<int64_t>(thin_x_stride(w.n_blocks * kBlockK)) * 2;
  ThinNeeds needs;
  needs.block =
      kLineBytes + static_cast<size_t>(n_rows * row_bytes *
                                       groups_of_block(w, std::min<int64_t>(units, gpu.sm_count)));
  needs.team = static_cast<size_t>(thin_sum_bytes(Piece::kStrips, static_cast<int>(n_rows)));
  needs.stage = kSlices * (Piece::kBytes + 8);
  needs.least_teams = n_rows > 2 ? kMaxTeams : 1;
  // Measured on an H200: more bytes on their way than these cost time.
  const bool decoded = Piece::kFormat != WeightFormat::kBf16;
  needs.max_stages = decoded ? 3 : 4;
  needs.pair_stages = decoded ? 2 : 4;
  if (units <= gpu.sm_count) {  // all of a unit is on its way at once
    const int blocks = (w.n_blocks + kSlices - 1) / kSlices;
    needs.max_stages = std::clamp((blocks + Piece::kBlocks - 1) / Piece::kBlocks, 2, kMaxStages);
  }
  return plan_thin(units, needs, gpu);
}

template <class Piece>
void launch(Call call, bool quantise, const Gpu& gpu, cudaStream_t stream) {
  const ThinPlan plan = plan_of<Piece>(call.job.w, call.n_rows, gpu);
  auto kernel = thin_linear_kernel<Piece, false>;
  if constexpr (Piece::kFormat != WeightFormat::kBf16)
    if (quantise) kernel = thin_linear_kernel<Piece, true>;
  call.stages = plan.stages;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(plan.shared_bytes));
  launch_overlapped(kernel, dim3(static_cast<unsigned>(plan.blocks)),
                    dim3(static_cast<unsigned>(plan.teams * kThinThreads)), plan.shared_bytes,
                    stream, call);
}

// Calls use(piece) with the kind of pieces for a matrix: shorter ones where x needs the room.
template <class Use>
auto with_piece(WeightFormat format, const PackedView& w, int64_t n_rows, Use use) {
  switch (format) {
    case WeightFormat::kFp8Tile:
      if (w.n_blocks % (10 * kSlices) == 0 && n_rows <= 2) return use(Fp8By10{});
      if (w.n_blocks % (5 * kSlices) == 0) return use(Fp8By5{});
      if (n_rows <= 2) return use(Fp8By8{});
      return use(Fp8By4{});
    case WeightFormat::kFp4Row:
      return use(Fp4{});
    default:
      return use(Bf16{});
  }
}

}  // namespace

bool thin_linear_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu) {
  if (gpu.cc_major < 9 || n_rows > kThinRows || weight.format() == WeightFormat::kF32) return false;
  return with_piece(weight.format(), weight.view(), n_rows, [&](auto piece) {
    return plan_of<decltype(piece)>(weight.view(), n_rows, gpu).shared_bytes > 0;
  });
}

void launch_thin_linear(const Packed& weight, device::Matrix<const uint16_t> x, bool quantise,
                        uint16_t* y, float* y_f32, int64_t y_stride, const Gpu& gpu,
                        cudaStream_t stream) {
  HADAL_CHECK(weight.format() != WeightFormat::kF32, "f32 weights have no strips");
  Call call = {};
  call.x = x.data;
  call.x_stride = x.stride;
  call.aligned = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0 &&
                 weight.view().k % 8 == 0;
  call.n_rows = static_cast<int32_t>(x.n_rows);
  call.y = y;
  call.y_f32 = y_f32;
  call.y_stride = y_stride;
  with_piece(weight.format(), weight.view(), x.n_rows, [&](auto piece) {
    using Piece = decltype(piece);
    call.job = ThinJob::make<Piece>(weight.view(), weight.view().n_strips, 1, 1, false);
    launch<Piece>(call, quantise, gpu, stream);
  });
}

}  // namespace hadal::cuda
