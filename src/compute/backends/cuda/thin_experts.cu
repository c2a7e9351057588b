#include <algorithm>

#include "compute/backends/cuda/thin.cuh"
#include "compute/backends/cuda/thin.h"

namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kStrips = 2;       // gate and up of 16 inner values; 32 outputs of down
constexpr int kMaxPlaces = 128;  // (row, choice) pairs, sorted by every block for itself

struct Call {
  ThinJob shared, routed;
  const uint16_t* h;
  int64_t h_stride;
  bool aligned;
  int32_t n_rows, top_k;
  const int32_t* expert;
  int64_t expert_stride;
  const float* weight;
  int64_t weight_stride;
  float limit;
  int32_t d_inter, d_hidden;
  int32_t down_rows;  // inner values that a block holds at a time
  uint16_t* act;
  uint16_t* out;
  int32_t* place;
};

// Pieces that divide the slices of the released experts (20 blocks up, 9 down).
using SharedUp = ThinPiece<WeightFormat::kFp8Tile, kStrips, 2>;
using RoutedUp = ThinPiece<WeightFormat::kFp4Row, kStrips, 5>;
using SharedDown = ThinPiece<WeightFormat::kFp8Tile, kStrips, 2>;
using RoutedDown = ThinPiece<WeightFormat::kFp4Row, kStrips, 3>;

// (row, choice) pairs by expert, then by row.
struct Places {
  int32_t id[kMaxPlaces];
  bool is_first[kMaxPlaces];           // of its expert, in the order of rows
  int32_t tile_group[kMaxPlaces];      // expert of a tile
  int32_t tile_first[kMaxPlaces + 1];  // place of its first row
  int32_t row[kMaxPlaces];
  float weight[kMaxPlaces];
  int32_t n_tiles;
};

// Shared memory: barriers, places, partial sums, rings, x.
template <class Shared, class Routed, bool kDeep>
struct Layout {
  using Stream = ThinStream<ThinCursor<Shared>, ThinCursor<Routed>, kDeep ? 3 : 2>;
  static constexpr int kStages = kDeep ? 3 : 2;
  static constexpr int kBarriers = kSlices * kStages * 8;
  static constexpr int kPlaces = (static_cast<int>(sizeof(Places)) + 127) / 128 * 128;
  static constexpr int kPartial = 2 * kSlices * kStrips * 128 * 4;
  static constexpr int kStageBytes = std::max(Shared::kBytes, Routed::kBytes);
  static constexpr int kRing = kStages * kStageBytes;
  static constexpr int kFixed = kBarriers + kPlaces + kPartial + kSlices * kRing;
};
template <bool kDeep>
using UpLayout = Layout<SharedUp, RoutedUp, kDeep>;
template <bool kDeep>
using DownLayout = Layout<SharedDown, RoutedDown, kDeep>;

__device__ void sort_places(const Call& call, Places& p) {
  const int n = call.n_rows * call.top_k, i = threadIdx.x;
  const int row = i / call.top_k, choice = i % call.top_k;
  int id = 0;
  if (i < n) p.id[i] = id = call.expert[row * call.expert_stride + choice];
  __syncthreads();
  bool first = true;
  int below = 0, rank = 0;
  if (i < n) {
    for (int j = 0; j < n; ++j) {
      below += p.id[j] < id;
      rank += p.id[j] == id && j < i;
    }
    first = rank == 0;
    p.is_first[i] = first;
  }
  __syncthreads();
  if (i < n) {
    int tile = 0, tiles = 0;
    for (int j = 0; j < n; ++j) {
      tile += p.is_first[j] && p.id[j] < id;
      tiles += p.is_first[j];
    }
    const int place = below + rank;
    p.row[place] = row;
    p.weight[place] = call.weight[row * call.weight_stride + choice];
    if (first) {
      p.tile_group[tile] = id;
      p.tile_first[tile] = below;
    }
    if (i == 0) {
      p.n_tiles = tiles;
      p.tile_first[tiles] = n;
    }
    if (blockIdx.x == 0) call.place[i] = place;
  }
  __syncthreads();
}

struct BlockParts {
  uint64_t* barriers;
  Places* places;
  float* partial;
  uint8_t* ring;
  uint16_t* x;
};
template <class Layout>
__device__ BlockParts block_parts(uint8_t* shared) {
  const int warp = threadIdx.x / 32;
  BlockParts p;
  p.barriers = reinterpret_cast<uint64_t*>(shared) + warp * Layout::kStages;
  p.places = reinterpret_cast<Places*>(shared + Layout::kBarriers);
  p.partial = reinterpret_cast<float*>(shared + Layout::kBarriers + Layout::kPlaces);
  uint8_t* rings = shared + Layout::kBarriers + Layout::kPlaces + Layout::kPartial;
  p.ring = rings + warp * Layout::kRing;
  p.x = reinterpret_cast<uint16_t*>(rings + kSlices * Layout::kRing);
  return p;
}

template <class Layout>
__device__ void start_stream(typename Layout::Stream& stream, const BlockParts& parts,
                             const ThinJob& shared, int first, int last) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  stream.stages = parts.ring;
  stream.stage_bytes = Layout::kStageBytes;
  stream.barriers = parts.barriers;
  if (lane == 0) {
    for (int i = 0; i < Layout::kStages; ++i) barrier_init(parts.barriers + i, 1);
    barrier_init_done();
  }
  __syncwarp();
  stream.a.start(&shared, nullptr, first, last, warp);
  stream.fill(lane);
}

template <bool kDeep>
__global__ void __launch_bounds__(kThinThreads, kDeep ? 2 : 3)
    thin_up_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  const BlockParts parts = block_parts<UpLayout<kDeep>>(shared);
  const Places& places = *parts.places;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t block = blockIdx.x, n_blocks = gridDim.x, n_shared = call.shared.tile_units;
  const auto shared_first = static_cast<int>(n_shared * block / n_blocks);
  const auto shared_last = static_cast<int>(n_shared * (block + 1) / n_blocks);
  typename UpLayout<kDeep>::Stream stream;
  start_stream<UpLayout<kDeep>>(stream, parts, call.shared, shared_first, shared_last);
  wait_for_previous();
  let_next_start();
  sort_places(call, *parts.places);
  const int64_t n_routed = static_cast<int64_t>(call.routed.tile_units) * places.n_tiles;
  const int routed_first = routed_begin(n_shared, n_routed, block, n_blocks);
  const int routed_last = routed_begin(n_shared, n_routed, block + 1, n_blocks);
  stream.b.start(&call.routed, places.tile_group, routed_first, routed_last, warp);
  stream.fill(lane);

  const int columns = call.routed.w.n_blocks * kBlockK, stride = thin_x_stride(columns);
  load_thin_x<true>(parts.x, call.n_rows, call.d_hidden, columns, call.aligned,
                    [&](int row) { return call.h + row * call.h_stride; });
  __syncthreads();
  const int n_places = call.n_rows * call.top_k;
  const auto leave = [&](float out_scale, int unit, int out, int64_t place, float weight,
                         const float(&total)[kStrips]) {
    const float gate = snap_bf16(total[0] * out_scale), up = snap_bf16(total[1] * out_scale);
    call.act[place * call.d_inter + unit * kStripRows + out] =
        bf16_from_float(gated(gate, up, call.limit, weight));
  };
  int n_done = 0;
  thin_units<SharedUp>(
      stream, call.shared, shared_first, shared_last, parts.partial, n_done,
      [&](int) { return ThinTile{parts.x + lane / 4 * stride, call.n_rows}; },
      [&](int, int unit, int out, int row, const float(&total)[kStrips]) {
        leave(call.shared.w.out_scale[0], unit, out, n_places + row, 1.0f, total);
      });
  thin_units<RoutedUp>(
      stream, call.routed, routed_first, routed_last, parts.partial, n_done,
      [&](int tile) {
        const int first = places.tile_first[tile], n = places.tile_first[tile + 1] - first;
        return ThinTile{parts.x + places.row[first + min(lane / 4, n - 1)] * stride, n};
      },
      [&](int tile, int unit, int out, int row, const float(&total)[kStrips]) {
        const int place = places.tile_first[tile] + row;
        leave(call.routed.w.out_scale[places.tile_group[tile]], unit, out, place,
              places.weight[place], total);
      });
}

// x: the inner values of `down_rows` places. Rows of the tiles of this block's units, if they fit,
// else those of one tile.
template <bool kDeep>
__global__ void __launch_bounds__(kThinThreads, kDeep ? 2 : 3)
    thin_down_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  const BlockParts parts = block_parts<DownLayout<kDeep>>(shared);
  const Places& places = *parts.places;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t block = blockIdx.x, n_blocks = gridDim.x, n_shared = call.shared.tile_units;
  const auto shared_first = static_cast<int>(n_shared * block / n_blocks);
  const auto shared_last = static_cast<int>(n_shared * (block + 1) / n_blocks);
  typename DownLayout<kDeep>::Stream stream;
  start_stream<DownLayout<kDeep>>(stream, parts, call.shared, shared_first, shared_last);
  // The routes were complete before the kernel that makes the inner values let this one start; it
  // writes the same places.
  sort_places(call, *parts.places);
  const int64_t n_routed = static_cast<int64_t>(call.routed.tile_units) * places.n_tiles;
  const int routed_first = routed_begin(n_shared, n_routed, block, n_blocks);
  const int routed_last = routed_begin(n_shared, n_routed, block + 1, n_blocks);
  stream.b.start(&call.routed, places.tile_group, routed_first, routed_last, warp);
  stream.fill(lane);
  wait_for_previous();
  let_next_start();

  const int columns = call.routed.w.n_blocks * kBlockK, stride = thin_x_stride(columns);
  const int n_places = call.n_rows * call.top_k;
  const auto load = [&](int first, int n) {
    __syncthreads();
    load_thin_x<true>(parts.x, n, call.d_inter, columns, true, [&](int row) {
      return call.act + static_cast<int64_t>(first + row) * call.d_inter;
    });
    __syncthreads();
  };
  const auto leave = [&](float out_scale, int unit, int out, int64_t place,
                         const float(&total)[kStrips]) {
#pragma unroll
    for (int m = 0; m < kStrips; ++m) {
      const int column = (unit * kStrips + m) * kStripRows + out;
      call.out[place * call.d_hidden + column] = bf16_from_float(total[m] * out_scale);
    }
  };
  int n_done = 0;
  thin_units<SharedDown>(
      stream, call.shared, shared_first, shared_last, parts.partial, n_done,
      [&](int) {
        load(n_places, call.n_rows);
        return ThinTile{parts.x + lane / 4 * stride, call.n_rows};
      },
      [&](int, int unit, int out, int row, const float(&total)[kStrips]) {
        leave(call.shared.w.out_scale[0], unit, out, n_places + row, total);
      });
  int held_first = 0, held_last = 0;  // places whose rows x holds
  if (routed_first < routed_last) {
    const int begin = places.tile_first[routed_first / call.routed.tile_units];
    const int end = places.tile_first[(routed_last - 1) / call.routed.tile_units + 1];
    if (end - begin <= call.down_rows) {
      load(begin, end - begin);
      held_first = begin;
      held_last = end;
    }
  }
  thin_units<RoutedDown>(
      stream, call.routed, routed_first, routed_last, parts.partial, n_done,
      [&](int tile) {
        const int first = places.tile_first[tile], n = places.tile_first[tile + 1] - first;
        if (first + n > held_last) {
          load(first, n);
          held_first = first;
          held_last = first + n;
        }
        return ThinTile{parts.x + (first - held_first + lane / 4) * stride, n};
      },
      [&](int tile, int unit, int out, int row, const float(&total)[kStrips]) {
        leave(call.routed.w.out_scale[places.tile_group[tile]], unit, out,
              places.tile_first[tile] + row, total);
      });
}

size_t row_bytes(int64_t n_rows, int64_t columns) {
  return static_cast<size_t>(n_rows * thin_x_stride(static_cast<int>(columns)) * 2);
}
// Rows of the inner values that a block holds at a time.
int32_t down_rows(int64_t n_rows) {
  return static_cast<int32_t>(std::max<int64_t>(n_rows, 4));
}
struct ExpertPlans {
  int64_t up_units, down_units;  // with every choice a different expert
  ThinPlan up, down;
};
ExpertPlans plans_of(const CudaExperts& e, int64_t n_rows, int64_t top_k, const Gpu& gpu) {
  const int64_t tiles = n_rows * top_k + 1;
  const size_t up = row_bytes(n_rows, e.d_hidden);
  const size_t down = row_bytes(down_rows(n_rows), e.d_inter);
  ExpertPlans p = {};
  p.up_units = tiles * (e.d_inter / kStripRows);
  p.down_units = tiles * (e.d_hidden / kStripRows / kStrips);
  p.up = plan_thin(p.up_units, UpLayout<false>::kFixed + up, UpLayout<true>::kFixed + up, gpu);
  p.down = plan_thin(p.down_units, DownLayout<false>::kFixed + down,
                     DownLayout<true>::kFixed + down, gpu);
  return p;
}

void launch(void (*kernel)(Call), const Call& call, const ThinPlan& plan, int64_t n_units,
            const Gpu& gpu, cudaStream_t stream) {
  const auto grid =
      static_cast<unsigned>(std::min<int64_t>(n_units, gpu.sm_count * plan.blocks_per_sm));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(plan.shared_bytes));
  launch_overlapped(kernel, dim3(grid), dim3(kThinThreads), plan.shared_bytes, stream, call);
}

}  // namespace

bool thin_experts_fit(const CudaExperts& e, int64_t n_rows, int64_t top_k, const Gpu& gpu) {
  if (gpu.cc_major < 9 || n_rows > kThinRows || n_rows * top_k > kMaxPlaces) return false;
  if (e.up.format() != WeightFormat::kFp4Row || e.down.format() != WeightFormat::kFp4Row ||
      e.shared_up.format() != WeightFormat::kFp8Tile ||
      e.shared_down.format() != WeightFormat::kFp8Tile)
    return false;
  const ExpertPlans plans = plans_of(e, n_rows, top_k, gpu);
  return std::max(plans.up.shared_bytes, plans.down.shared_bytes) <= gpu.smem_optin;
}

void launch_thin_experts(const ops::MoeArgs& args, const ThinExperts& arrays, const Gpu& gpu,
                         cudaStream_t stream) {
  const CudaExperts& e = *arrays.experts;
  const int64_t rows = args.h.n_rows, top_k = args.expert.n_cols;
  Call call = {};
  call.h = args.h.data;
  call.h_stride = args.h.stride;
  call.aligned = reinterpret_cast<uintptr_t>(args.h.data) % 16 == 0 && args.h.stride % 8 == 0;
  call.n_rows = static_cast<int32_t>(rows);
  call.top_k = static_cast<int32_t>(top_k);
  call.expert = args.expert.data;
  call.expert_stride = args.expert.stride;
  call.weight = args.weight.data;
  call.weight_stride = args.weight.stride;
  call.limit = args.limit;
  call.d_inter = e.d_inter;
  call.d_hidden = e.d_hidden;
  call.down_rows = down_rows(rows);
  call.act = arrays.act;
  call.out = arrays.out;
  call.place = arrays.place;
  const int32_t inter_strips = e.d_inter / kStripRows;
  call.shared = {e.shared_up.view(), inter_strips, 1, inter_strips};
  call.routed = {e.up.view(), inter_strips, 1, inter_strips};
  const ExpertPlans plans = plans_of(e, rows, top_k, gpu);
  launch(plans.up.deep ? thin_up_kernel<true> : thin_up_kernel<false>, call, plans.up,
         plans.up_units, gpu, stream);
  const int32_t hidden_units = e.d_hidden / kStripRows / kStrips;
  call.shared = {e.shared_down.view(), hidden_units, kStrips, 1};
  call.routed = {e.down.view(), hidden_units, kStrips, 1};
  launch(plans.down.deep ? thin_down_kernel<true> : thin_down_kernel<false>, call, plans.down,
         plans.down_units, gpu, stream);
}

}  // namespace hadal::cuda
