#include <algorithm>
#include <type_traits>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/big_boxes.cuh"
#include "compute/backends/cuda/big_list_fp8.h"
#include "compute/backends/cuda/big_store.cuh"
#include "compute/backends/cuda/big_wgmma.cuh"
#include "compute/backends/cuda/fp8_weights.cuh"
#include "compute/backends/cuda/product_roles.h"
#include "compute/backends/cuda/ring.cuh"
#include "compute/backends/cuda/wgmma.cuh"

// The kernel of big_list.cu in E4M3: a stage is a window of 128 inputs. While a warpgroup's
// products of a window run it decodes the weights of the next one; then the window's sums go to
// f32, and the other warpgroup multiplies.
namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kStrips = kWarpgroups * 4;
constexpr int kStripBytes = kWindowBlocks * 272;
constexpr int kFirstClass = 1;
static_assert(kTileClassRows[kFirstClass] == kFp8TileRows);

struct Shape {
  static constexpr int kRowsAt = kStrips * kStripBytes;
  static constexpr int kScalesAt = kRowsAt + kFp8TileRows / 8 * kRowTileBytes;
  static constexpr int kStageBytes =
      (kScalesAt + kFp8TileRows / 8 * kRowTileScales + 127) / 128 * 128;
  static constexpr int kStages = 6;
  static constexpr int kTableAt = kStages * kStageBytes;
  static constexpr int kStoreAt = kTableAt + 128;
  static constexpr int kBarriersAt = kStoreAt + kWarpgroups * kStoreBytes;
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8;
  static_assert(kRowsAt % 128 == 0 && kFp4Powers * 8 <= 128 && kSharedBytes <= 227 << 10);
};

struct Call {
  CUtensorMap weights;  // boxes of a window
  PackedView w;
  const uint8_t* x;
  int64_t x_row_tiles;  // of a window
  int32_t n_windows;
  const RowTile* tiles;       // by class
  const int32_t* class_ends;  // [kTileClasses]
  int32_t across;             // jobs over the outputs of a tile
  uint16_t* y;
  int64_t y_stride;
};

// The thread that brings a job's stages.
__device__ void produce(const Call& call, const RowTile& tile, int first_strip, Ring<Shape>& ring) {
  const int strip = tile.group * call.w.n_strips + first_strip;
  const int n = (tile.n_rows + 7) / 8;
  const int64_t window_bytes = call.x_row_tiles * (kRowTileBytes + kRowTileScales);
  const uint8_t* rows = call.x + tile.first / 8 * kRowTileBytes;
  const uint8_t* scales =
      call.x + call.x_row_tiles * kRowTileBytes + tile.first / 8 * kRowTileScales;
  for (int window = 0; window < call.n_windows; ++window) {
    barrier_wait(ring.empty + ring.at, ring.phase ^ 1);
    uint64_t* full = ring.full + ring.at;
    uint8_t* stage = ring.stage();
    barrier_arrive_expect(full, kStrips * kStripBytes + n * (kRowTileBytes + kRowTileScales));
    copy_box(stage, call.weights, window * kStripBytes, strip, full);
    bulk_copy(stage + Shape::kRowsAt, rows + window * window_bytes, n * kRowTileBytes, full);
    bulk_copy(stage + Shape::kScalesAt, scales + window * window_bytes, n * kRowTileScales, full);
    ring.next();
  }
}

// A warpgroup's half of a job of up to kRows rows.
template <int kRows>
__device__ __forceinline__ void consume(const Call& call, const RowTile& tile, int first_strip,
                                        uint8_t* shared, Ring<Shape>& ring) {
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = lane % 4;
  const uint32_t table =
      shared_address(shared + Shape::kTableAt) + (kFp4Powers - 1 - w.top_field[tile.group]) * 8;
  float total[kRows / 2] = {}, sum[kRows / 2];
  uint32_t a[kWindowBlocks][4];
  barrier_wait(ring.full + ring.at, ring.phase);
  load_fp4_window(ring.stage() + warp * kStripBytes, table, w.n_blocks, a);
#pragma unroll 1
  for (int window = 0; window < call.n_windows; ++window) {
    const int stage_at = ring.at;
    const uint8_t* stage = ring.stage();
    const uint64_t x = wgmma_operand(shared_address(stage + Shape::kRowsAt), kRowTileBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kWindowBlocks; ++i)
      wgmma_fp8_rows(sum, a[i], wgmma_part(x, i * 256), i > 0 ? 1 : 0);
    wgmma_commit();
    ring.next();
    uint32_t next[kWindowBlocks][4];
    if (window + 1 < call.n_windows) {
      barrier_wait(ring.full + ring.at, ring.phase);
      load_fp4_window(ring.stage() + warp * kStripBytes, table,
                      w.n_blocks - (window + 1) * kWindowBlocks, next);
    }
    wgmma_wait<0>();
    const float* scales = reinterpret_cast<const float*>(stage + Shape::kScalesAt) + c * 2;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      const float2 scale = *reinterpret_cast<const float2*>(scales + j * 8);
      float* t = total + j * 4;
      const float* s = sum + j * 4;
      t[0] = fmaf(s[0], scale.x, t[0]), t[1] = fmaf(s[1], scale.y, t[1]);
      t[2] = fmaf(s[2], scale.x, t[2]), t[3] = fmaf(s[3], scale.y, t[3]);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty + stage_at);
#pragma unroll
    for (int i = 0; i < kWindowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) a[i][j] = next[i][j];
  }
  const int group = warp / 4, first_out = first_strip * kStripRows + group * 64;
  store_tile<kRows>(call.y + tile.first * call.y_stride + first_out, call.y_stride, tile.n_rows,
                    w.n - first_out, total, w.fp4_scale[tile.group],
                    shared + Shape::kStoreAt + group * kStoreBytes, 1 + group, warp % 4, lane);
}

__global__ void __launch_bounds__(kThreads, 1)
    big_list_fp8_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(128) uint8_t shared[];
  Ring<Shape> ring(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(ring.full + i, 1);
      barrier_init(ring.empty + i, kConsumers / 32);
    }
    barrier_init_done();
  }
  if (threadIdx.x < kFp4Powers) {
    const int power = kMinFp4Power + static_cast<int>(threadIdx.x);
    reinterpret_cast<uint2*>(shared + Shape::kTableAt)[threadIdx.x] =
        make_uint2(fp4_magnitudes(power, 0), fp4_magnitudes(power, 1));
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  const int jobs = call.class_ends[kTileClasses - 1] * call.across;
  const auto strip_at = [&](int index) { return index % call.across * kStrips; };
  if (threadIdx.x >= kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    if (threadIdx.x != kConsumers) return;
    for (int index = blockIdx.x; index < jobs; index += gridDim.x)
      produce(call, call.tiles[index / call.across], strip_at(index), ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    int index = blockIdx.x;
    const auto consume_class = [&](auto rows, int of) {
      for (; index < call.class_ends[of] * call.across; index += gridDim.x)
        consume<decltype(rows)::value>(call, call.tiles[index / call.across], strip_at(index),
                                       shared, ring);
    };
    consume_class(std::integral_constant<int, kTileClassRows[1]>(), 1);
    consume_class(std::integral_constant<int, kTileClassRows[2]>(), 2);
    consume_class(std::integral_constant<int, kTileClassRows[3]>(), 3);
    consume_class(std::integral_constant<int, kTileClassRows[4]>(), 4);
  }
}

}  // namespace

bool fp8_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu) {
  const PackedView& w = weight.view();
  return gpu.fp8_products && gpu.cc_major == 9 && weight.format() == WeightFormat::kFp4Row &&
         weight.fp4_exact_in_fp8() && n_rows >= kFp8LeastRows && w.n % kStripRows == 0 && w.k >= 96;
}

bool fp8_experts_pay(int64_t n_rows, int64_t top_k, int64_t n_experts) {
  return top_k >= 2 && n_rows * top_k >= 96 * n_experts;
}

void launch_big_list_fp8(const Fp8Product& p, const Gpu& gpu, cudaStream_t stream) {
  HADAL_CHECK(p.tiles != nullptr && p.weight->format() == WeightFormat::kFp4Row &&
                  p.y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.y) % 16 == 0,
              "a list of tiles, FP4, rows at multiples of 16 bytes");
  Call call = {};
  call.w = p.weight->view();
  const PackedView& w = call.w;
  call.weights = make_tile_map(w.weight, w.strip_bytes,
                               static_cast<int64_t>(w.n_groups) * w.n_strips, kStripBytes, kStrips);
  call.x = p.x;
  call.x_row_tiles = (p.x_rows + 7) / 8;
  call.n_windows = count_windows(w.n_blocks);
  call.tiles = p.tiles;
  call.class_ends = p.class_ends;
  call.across = strip_jobs(w.n_strips, kStrips);
  call.y = p.y;
  call.y_stride = p.y_stride;
  const int64_t jobs = static_cast<int64_t>(p.max_tiles) * call.across;
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(jobs, 1, gpu.sm_count));
  cudaFuncSetAttribute(big_list_fp8_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       Shape::kSharedBytes);
  launch_overlapped(big_list_fp8_kernel, dim3(grid), dim3(kThreads), Shape::kSharedBytes, stream,
                    call);
}

}  // namespace hadal::cuda
