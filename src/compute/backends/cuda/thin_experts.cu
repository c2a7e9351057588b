#include <algorithm>

#include "compute/backends/cuda/thin.cuh"
#include "compute/backends/cuda/thin.h"
#include "compute/backends/cuda/thin_places.cuh"

namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kStrips = 2;  // gate and up of 16 inner values; 32 outputs of down

// Jobs of a team, in this order.
enum { kSharedUp, kRoutedUp, kSharedDown, kRoutedDown, kJobs };

struct Call {
  ThinJob jobs[kJobs];
  uint32_t* meeting;
  const uint16_t* h;
  int64_t h_stride;
  bool aligned;
  int32_t n_rows;
  Routes routes;
  float limit;
  int32_t d_inter, d_hidden;
  int32_t stages;
  uint16_t* act;
  uint16_t* out;
  int32_t* place;
};

// Pieces that divide the slices of the released experts (20 blocks up, 9 down).
using SharedUp = ThinPiece<WeightFormat::kFp8Tile, kStrips, 4, 2>;
using RoutedUp = ThinPiece<WeightFormat::kFp4Row, kStrips, 10, 5>;
using SharedDown = ThinPiece<WeightFormat::kFp8Tile, kStrips, 3>;
using RoutedDown = ThinPiece<WeightFormat::kFp4Row, kStrips, 9, 3>;

struct Lists {
  Places places;
  int2 units[kMaxTeams][kJobs];  // of the block's teams
};
constexpr int kListBytes = (static_cast<int>(sizeof(Lists)) + 127) / 128 * 128;
constexpr int kStageBytes = std::max(std::max(SharedUp::kBytes, RoutedUp::kBytes),
                                     std::max(SharedDown::kBytes, RoutedDown::kBytes));

// Waits for all blocks of the launch; what they wrote before is visible then. They are on the GPU
// at once: a block fits an SM, there are no more of them than SMs, and what runs beside them (the
// kernel before, which does not wait for this one) ends. Two kernels that do this must not run at
// once: a backend has one stream, and processes take turns. `meeting` is zero in its lower 31 bits
// before and behind that.
__device__ __forceinline__ void meet(uint32_t* meeting) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t part = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    uint32_t before, now;
    asm volatile("atom.add.acq_rel.gpu.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(meeting), "r"(part)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(meeting) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();
}

// Both halves of the experts: the inner values of all rows, then, when all blocks have theirs, the
// outputs. The rings run on with the weights of the second half meanwhile. Shared memory: lists,
// barriers, sums of the teams, rings, x.
__global__ void __launch_bounds__(kMaxTeams* kThinThreads, 1)
    thin_experts_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  auto& lists = *reinterpret_cast<Lists*>(shared);
  const Places& places = lists.places;
  const int lane = threadIdx.x % 32, team = warp_of_block() / kSlices;
  const int n_warps = blockDim.x / 32, n_teams = n_warps / kSlices;
  const int sum_bytes = thin_sum_bytes(kStrips, call.n_rows);
  uint8_t* barriers = shared + kListBytes;
  uint8_t* all_sums = barriers + thin_barrier_bytes(n_warps, call.stages);
  uint8_t* rings = all_sums + n_teams * sum_bytes;
  auto* sums = reinterpret_cast<float*>(all_sums + team * sum_bytes);
  auto* x = reinterpret_cast<uint16_t*>(rings + n_warps * call.stages * kStageBytes);
  const int n_places = call.n_rows * call.routes.top_k;
  const int64_t first_team = static_cast<int64_t>(blockIdx.x) * n_teams;
  const int64_t of = static_cast<int64_t>(gridDim.x) * n_teams;

  const int slot = threadIdx.x % kThinThreads;
  if (slot < 2) {  // the shared expert's, of either half
    const int n = call.jobs[2 * slot].tile_units;
    lists.units[team][2 * slot] =
        make_int2(unit_begin(n, first_team + team, of), unit_begin(n, first_team + team + 1, of));
  }
  team_sync();
  ThinStream<kStrips> stream(call.jobs, lists.units[team], places.tile_group, barriers, rings,
                             call.stages, kStageBytes);
  stream.fill(1);
  const int up_columns = call.jobs[kRoutedUp].w.n_blocks * kBlockK;
  const int up_stride = thin_x_stride(up_columns);
  // h is read before the wait: its writer was complete before the kernel that made the routes let
  // this one start.
  load_thin_x<true>(x, call.n_rows, call.d_hidden, up_columns, call.aligned,
                    [&](int row) { return call.h + row * call.h_stride; });
  wait_for_previous();
  let_next_start();
  sort_places(call.routes, lists.places, blockIdx.x == 0 ? call.place : nullptr);
  if (slot < 2) {
    const ThinJob& job = call.jobs[2 * slot + 1];
    const int64_t n_shared = call.jobs[2 * slot].tile_units;
    const int64_t n = static_cast<int64_t>(job.tile_units) * places.n_tiles;
    lists.units[team][2 * slot + 1] =
        make_int2(routed_begin(n_shared, n, first_team + team, of),
                  routed_begin(n_shared, n, first_team + team + 1, of));
  }
  __syncthreads();
  stream.fill(kJobs);

  const auto inner = [&](float out_scale, int unit, int out, int64_t place, float weight,
                         const float(&total)[kStrips]) {
    const float gate = snap_bf16(total[0] * out_scale), up = snap_bf16(total[1] * out_scale);
    call.act[place * call.d_inter + unit * kStripRows + out] =
        bf16_from_float(gated(gate, up, call.limit, weight));
  };
  const int2* units = lists.units[team];
  int n_done = 0;
  thin_units<SharedUp>(
      stream, kJobs, call.jobs[kSharedUp], units[kSharedUp], sums, call.n_rows, n_done,
      [&](int) { return ThinTile{x + lane / 4 * up_stride, call.n_rows}; },
      [&](int, int unit, int out, int row, const float(&total)[kStrips]) {
        inner(call.jobs[kSharedUp].w.out_scale[0], unit, out, n_places + row, 1.0f, total);
      });
  thin_units<RoutedUp>(
      stream, kJobs, call.jobs[kRoutedUp], units[kRoutedUp], sums, call.n_rows, n_done,
      [&](int tile) {
        const int first = places.tile_first[tile], n = places.tile_first[tile + 1] - first;
        return ThinTile{x + places.row[first + min(lane / 4, n - 1)] * up_stride, n};
      },
      [&](int tile, int unit, int out, int row, const float(&total)[kStrips]) {
        const int place = places.tile_first[tile] + row;
        inner(call.jobs[kRoutedUp].w.out_scale[places.tile_group[tile]], unit, out, place,
              places.weight[place], total);
      });

  meet(call.meeting);
  // x: the inner values of the shared expert's rows, then those of the tiles that the block has
  // units of.
  const int columns = call.jobs[kRoutedDown].w.n_blocks * kBlockK, stride = thin_x_stride(columns);
  const auto row_at = [&](int place) {
    return call.act + static_cast<int64_t>(place) * call.d_inter;
  };
  load_thin_x<true>(x, call.n_rows, call.d_inter, columns, true,
                    [&](int row) { return row_at(n_places + row); });
  uint16_t* routed_x = x + call.n_rows * stride;
  const int block_first = lists.units[0][kRoutedDown].x;
  const int block_last = lists.units[n_teams - 1][kRoutedDown].y;
  const int tile_units = call.jobs[kRoutedDown].tile_units;
  int held = 0;  // the first place that routed_x holds
  if (block_first < block_last) {
    held = places.tile_first[block_first / tile_units];
    const int end = places.tile_first[(block_last - 1) / tile_units + 1];
    load_thin_x<true>(routed_x, end - held, call.d_inter, columns, true,
                      [&](int row) { return row_at(held + row); });
  }
  __syncthreads();
  const auto outer = [&](float out_scale, int unit, int out, int64_t place,
                         const float(&total)[kStrips]) {
#pragma unroll
    for (int m = 0; m < kStrips; ++m) {
      const int column = (unit * kStrips + m) * kStripRows + out;
      call.out[place * call.d_hidden + column] = bf16_from_float(total[m] * out_scale);
    }
  };
  thin_units<SharedDown>(
      stream, kJobs, call.jobs[kSharedDown], units[kSharedDown], sums, call.n_rows, n_done,
      [&](int) { return ThinTile{x + lane / 4 * stride, call.n_rows}; },
      [&](int, int unit, int out, int row, const float(&total)[kStrips]) {
        outer(call.jobs[kSharedDown].w.out_scale[0], unit, out, n_places + row, total);
      });
  thin_units<RoutedDown>(
      stream, kJobs, call.jobs[kRoutedDown], units[kRoutedDown], sums, call.n_rows, n_done,
      [&](int tile) {
        const int first = places.tile_first[tile], n = places.tile_first[tile + 1] - first;
        return ThinTile{routed_x + (first - held + lane / 4) * stride, n};
      },
      [&](int tile, int unit, int out, int row, const float(&total)[kStrips]) {
        outer(call.jobs[kRoutedDown].w.out_scale[places.tile_group[tile]], unit, out,
              places.tile_first[tile] + row, total);
      });
}

size_t row_bytes(int64_t n_rows, int64_t columns) {
  return static_cast<size_t>(n_rows * thin_x_stride(static_cast<int>(columns)) * 2);
}
// With every choice a different expert.
ThinPlan plan_of(const CudaExperts& e, int64_t n_rows, int64_t top_k, const Gpu& gpu) {
  const int64_t tiles = n_rows * top_k, down_units = e.d_hidden / kStripRows / kStrips;
  // Tiles of a block in the second half, at most, of up to 8 rows each.
  const int64_t part = (tiles + 2) * down_units / gpu.sm_count + 3;
  const int64_t held = std::min(tiles, ((part + down_units - 2) / down_units + 1) * n_rows);
  ThinNeeds needs;
  needs.block = kLineBytes + kListBytes +
                std::max(row_bytes(n_rows, e.d_hidden), row_bytes(n_rows + held, e.d_inter));
  needs.team = static_cast<size_t>(thin_sum_bytes(kStrips, static_cast<int>(n_rows)));
  needs.stage = kSlices * (kStageBytes + 8);
  needs.least_teams = kMaxTeams;
  return plan_thin((tiles + 1) * std::max<int64_t>(e.d_inter / kStripRows, down_units), needs, gpu);
}

}  // namespace

bool thin_experts_fit(const CudaExperts& e, int64_t n_rows, int64_t top_k, const Gpu& gpu) {
  if (gpu.cc_major < 9 || n_rows > kThinRows || n_rows * top_k > kMaxPlaces) return false;
  if (e.up.format() != WeightFormat::kFp4Row || e.down.format() != WeightFormat::kFp4Row ||
      e.shared_up.format() != WeightFormat::kFp8Tile ||
      e.shared_down.format() != WeightFormat::kFp8Tile)
    return false;
  return plan_of(e, n_rows, top_k, gpu).shared_bytes > 0;
}

void launch_thin_experts(const ops::MoeArgs& args, const ThinExperts& arrays, const Gpu& gpu,
                         cudaStream_t stream) {
  const CudaExperts& e = *arrays.experts;
  const int64_t rows = args.h.n_rows, top_k = args.expert.n_cols;
  const ThinPlan plan = plan_of(e, rows, top_k, gpu);
  Call call = {};
  const int32_t inter = e.d_inter / kStripRows, hidden = e.d_hidden / kStripRows / kStrips;
  call.jobs[kSharedUp] = ThinJob::make<SharedUp>(e.shared_up.view(), inter, 1, inter, false);
  call.jobs[kRoutedUp] = ThinJob::make<RoutedUp>(e.up.view(), inter, 1, inter, true);
  call.jobs[kSharedDown] =
      ThinJob::make<SharedDown>(e.shared_down.view(), hidden, kStrips, 1, false);
  call.jobs[kRoutedDown] = ThinJob::make<RoutedDown>(e.down.view(), hidden, kStrips, 1, true);
  call.meeting = reinterpret_cast<uint32_t*>(e.meeting.data());
  call.h = args.h.data;
  call.h_stride = args.h.stride;
  call.aligned = reinterpret_cast<uintptr_t>(args.h.data) % 16 == 0 && args.h.stride % 8 == 0;
  call.n_rows = static_cast<int32_t>(rows);
  call.routes = {args.expert.data,   args.expert.stride, args.weight.data,
                 args.weight.stride, call.n_rows,        static_cast<int32_t>(top_k)};
  call.limit = args.limit;
  call.d_inter = e.d_inter;
  call.d_hidden = e.d_hidden;
  call.stages = plan.stages;
  call.act = arrays.act;
  call.out = arrays.out;
  call.place = arrays.place;
  cudaFuncSetAttribute(thin_experts_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(plan.shared_bytes));
  launch_overlapped(thin_experts_kernel, dim3(static_cast<unsigned>(plan.blocks)),
                    dim3(static_cast<unsigned>(plan.teams * kThinThreads)), plan.shared_bytes,
                    stream, call);
}

}  // namespace hadal::cuda
