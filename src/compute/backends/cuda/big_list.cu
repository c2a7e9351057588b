#include <algorithm>
#include <type_traits>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/big_boxes.cuh"
#include "compute/backends/cuda/big_list.h"
#include "compute/backends/cuda/big_slices.cuh"
#include "compute/backends/cuda/big_store.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/product_roles.h"
#include "compute/backends/cuda/ring.cuh"

// The kernel of big.cu for FP4 weights and a list of tiles. A block goes through jobs of a tile by
// 128 outputs: one thread brings boxes of weights and of 32 rows to a ring of stages; each of two
// warpgroups turns the weights of 64 outputs to bf16 in registers, once for all rows of the tile,
// and multiplies. The product is as wide as the tile's class. The two blocks of a
// cluster have the same tile and bring every other box of rows, to both.
namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kStrips = kWarpgroups * 4;
constexpr int kStageBlocks = 2;
constexpr int kBoxRows = 32;
constexpr int kBlockBytes = BlockBytes<WeightFormat::kFp4Row>::kBytes;

struct Shape {
  static constexpr int kRowsAt = kStrips * kStageBlocks * kBlockBytes;
  static constexpr int kStageBytes = kRowsAt + kLongTileRows / 8 * kStageBlocks * 512;
  static constexpr int kStages = 7;
  static constexpr int kStoreAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kStoreAt + kWarpgroups * kStoreBytes;
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8;
  static_assert(kRowsAt % 128 == 0 && kStageBytes % 128 == 0, "boxes and core matrices");
  static_assert(kSharedBytes <= 227 << 10);
};

struct Call {
  CUtensorMap weights[kStageBlocks], rows[kStageBlocks];  // boxes of 1 and 2 blocks
  PackedView w;
  const RowTile* tiles;       // by class
  const int32_t* class_ends;  // [kTileClasses]
  int32_t cluster;
  int32_t across;  // turns of a cluster over the outputs of a tile
  uint16_t* y;
  int64_t y_stride;
};

// The ring of the thread that brings stages, by addresses in shared memory. All that this thread
// does is on the way of every stage: with pointers, divisions and a loop over single lanes a stage
// took it 900 clocks, of the 600 that the products take.
struct Feed {
  uint32_t stages, full, empty;
  int at = 0;
  uint32_t phase = 1;  // of `empty`

  __device__ explicit Feed(const uint8_t* shared)
      : stages(opaque(shared_address(shared))),
        full(stages + Shape::kBarriersAt),
        empty(full + Shape::kStages * 8) {}
};
// A job as that thread sees it.
struct FeedJob {
  int strip;        // row of the weights' boxes
  int row;          // of this block's first box of rows
  int boxes, mine;  // of rows: of the tile, of this block
};

// A stage of kBlocks blocks, from `block` on.
template <int kBlocks>
__device__ __forceinline__ void bring(const Call& call, const FeedJob& job, int block, int rank,
                                      Feed& ring) {
  constexpr int kBoxBytes = kBoxRows / 8 * kBlocks * 512;
  const int cluster = call.cluster;
  const uint32_t full = ring.full + ring.at * 8;
  const uint32_t stage = ring.stages + ring.at * Shape::kStageBytes;
  uint32_t to = stage + Shape::kRowsAt + rank * kBoxBytes;
  int row = job.row;
  shared_barrier_wait(ring.empty + ring.at * 8, ring.phase);
  shared_barrier_expect(full, kBlocks * (kStrips * kBlockBytes) + job.boxes * kBoxBytes);
  copy_box(stage, call.weights[kBlocks - 1], block * (kBlockBytes / kMapUnit), job.strip, full);
  const int at = block * (512 / kMapUnit);
#pragma unroll 1
  for (int i = 0; i < job.mine; ++i) {
    if (cluster == 1) {
      copy_box(to, call.rows[kBlocks - 1], at, row, full);
    } else {
      copy_box_to_all(to, call.rows[kBlocks - 1], at, row, full,
                      static_cast<uint16_t>((1 << cluster) - 1));
    }
    to += cluster * kBoxBytes;
    row += cluster * (kBoxRows / 8);
  }
  if (++ring.at == Shape::kStages) {
    ring.at = 0;
    ring.phase ^= 1;
  }
}

// The thread that brings a job's stages.
__device__ __forceinline__ void produce(const Call& call, const RowTile& tile, int first_strip,
                                        int rank, Feed& ring) {
  const PackedView& w = call.w;
  FeedJob job;
  job.strip = tile.group * w.n_strips + first_strip;
  job.row = tile.first / 8 + rank * (kBoxRows / 8);
  job.boxes = (tile.n_rows + kBoxRows - 1) / kBoxRows;
  job.mine = (job.boxes - rank + call.cluster - 1) / call.cluster;
  int block = 0;
  for (int slice = 1; slice <= kSlices; ++slice) {
    const int end = slice_begin(slice, w.n_blocks);
    if ((end - block) % 2 != 0) {  // stage_blocks()
      bring<1>(call, job, block, rank, ring);
      ++block;
    }
#pragma unroll 1
    for (; block < end; block += 2) bring<2>(call, job, block, rank, ring);
  }
}

// A warpgroup's half of a job of up to kRows rows.
template <int kRows>
__device__ __forceinline__ void consume(const Call& call, const RowTile& tile, int first_strip,
                                        uint8_t* shared, Ring<Shape>& ring) {
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float total[kRows / 2] = {};
  add_slices<WeightFormat::kFp4Row, kRows>(w, call.cluster, ring, total);
  const int group = warp / 4, first_out = first_strip * kStripRows + group * 64;
  store_tile<kRows>(call.y + tile.first * call.y_stride + first_out, call.y_stride, tile.n_rows,
                    w.n - first_out, total, w.out_scale[tile.group],
                    shared + Shape::kStoreAt + group * kStoreBytes, 1 + group, warp % 4, lane);
}

__global__ void __launch_bounds__(kThreads, 1) big_list_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  Ring<Shape> ring(shared);
  const int cluster = call.cluster, rank = static_cast<int>(cluster_rank());
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(ring.full + i, 1);
      barrier_init(ring.empty + i, kConsumers / 32 * cluster);
    }
    barrier_init_done();
  }
  cluster_sync();
  wait_for_previous();
  let_next_start();
  const int turns = call.class_ends[kTileClasses - 1] * call.across;
  const int first = static_cast<int>(blockIdx.x) / cluster;
  const int step = static_cast<int>(gridDim.x) / cluster;
  const auto strip_at = [&](int index) { return (index % call.across * cluster + rank) * kStrips; };
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp >= kConsumers / 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    if (warp == kConsumers / 32 && elect_lane()) {
      Feed feed(shared);
      for (int index = first; index < turns; index += step)
        produce(call, call.tiles[index / call.across], strip_at(index), rank, feed);
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    int index = first;
    // One loop for each width: with the widths side by side in one loop the compiler keeps their
    // sums in memory.
    const auto consume_class = [&](auto rows, int of) {
      for (; index < call.class_ends[of] * call.across; index += step)
        consume<decltype(rows)::value>(call, call.tiles[index / call.across], strip_at(index),
                                       shared, ring);
    };
    consume_class(std::integral_constant<int, kTileClassRows[0]>(), 0);
    consume_class(std::integral_constant<int, kTileClassRows[1]>(), 1);
    consume_class(std::integral_constant<int, kTileClassRows[2]>(), 2);
    consume_class(std::integral_constant<int, kTileClassRows[3]>(), 3);
    consume_class(std::integral_constant<int, kTileClassRows[4]>(), 4);
  }
  cluster_sync();  // no block leaves while another one may still arrive at its barriers
}

}  // namespace

bool big_list_fits(const Packed& weight, const Gpu& gpu) {
  return weight.format() == WeightFormat::kFp4Row && weight.view().n % 8 == 0 && gpu.cc_major == 9;
}

void launch_big_list(const WideProduct& p, const int32_t* class_ends, int64_t x_rows,
                     const Gpu& gpu, cudaStream_t stream) {
  HADAL_CHECK(p.tiles != nullptr && p.y != nullptr && p.y_stride % 8 == 0 &&
                  reinterpret_cast<uintptr_t>(p.y) % 16 == 0,
              "a list of tiles, rows of bf16 at multiples of 16 bytes");
  Call call = {};
  call.w = p.weight->view();
  const PackedView& w = call.w;
  call.tiles = p.tiles;
  call.class_ends = class_ends;
  const int32_t parts = strip_jobs(w.n_strips, kStrips);
  call.cluster = parts % 2 == 0 ? 2 : 1;
  call.across = parts / call.cluster;
  call.y = p.y;
  call.y_stride = p.y_stride;
  const int64_t n_strips = static_cast<int64_t>(w.n_groups) * w.n_strips;
  for (int n = 1; n <= kStageBlocks; ++n) {
    call.weights[n - 1] =
        make_tile_map(w.weight, w.strip_bytes, n_strips, n * kBlockBytes, kStrips);
    call.rows[n - 1] = make_tile_map(p.x, p.x_columns * 16, x_rows / 8, n * 512, kBoxRows / 8);
  }
  const int64_t turns = static_cast<int64_t>(p.max_tiles) * call.across;
  const auto clusters = std::clamp<int64_t>(turns, 1, gpu.sm_count / call.cluster);
  cudaFuncSetAttribute(big_list_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       Shape::kSharedBytes);
  launch_following(true, static_cast<unsigned>(call.cluster), big_list_kernel,
                   dim3(static_cast<unsigned>(clusters * call.cluster)), dim3(kThreads),
                   Shape::kSharedBytes, stream, call);
}

}  // namespace hadal::cuda
