#include <algorithm>

#include "base/core/check.h"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/product.h"

namespace hadal::cuda {
namespace {

using ops::WeightFormat;

constexpr int kWarps = 4;
constexpr int kStrips = 2;  // of a warp
constexpr int kBlockStrips = kWarps * kStrips;

// Kernel form of a Product.
struct Call {
  PackedView w;
  const uint16_t* x;
  int64_t x_stride;
  const int32_t* x_rows;
  const RowTile* tiles;
  const int32_t* n_tiles;
  int32_t static_tiles, n_rows;
  uint16_t* y;
  float* y_f32;
  int64_t y_stride;
};

__device__ __forceinline__ RowTile tile_at(const Call& call, int index, int tile_rows) {
  if (call.tiles != nullptr) return call.tiles[index];
  const int per_group = call.static_tiles / call.w.n_groups;
  const int first = index % per_group * tile_rows;
  return {index / per_group, first, min(tile_rows, call.n_rows - first)};
}

__device__ __forceinline__ void store(const Call& call, int64_t row, int64_t column, float v) {
  if (call.y_f32 != nullptr) {
    call.y_f32[row * call.y_stride + column] = v;
  } else {
    call.y[row * call.y_stride + column] = bf16_from_float(v);
  }
}

// One warp two strips by up to kTiles * 8 rows, all of k. Weights come from memory to registers.
template <WeightFormat F, int kTiles>
__global__ void __launch_bounds__(kWarps * 32) product_kernel(Call call) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, c = lane % 4;
  const PackedView& w = call.w;
  const int strip_jobs = (w.n_strips + kBlockStrips - 1) / kBlockStrips;
  const int n_tiles = call.tiles != nullptr ? *call.n_tiles : call.static_tiles;
  for (int64_t job = blockIdx.x; job < static_cast<int64_t>(n_tiles) * strip_jobs;
       job += gridDim.x) {
    const RowTile tile = tile_at(call, static_cast<int>(job / strip_jobs), kTiles * 8);
    const int strip0 = (static_cast<int>(job % strip_jobs) * kWarps + warp) * kStrips;
    if (strip0 >= w.n_strips) continue;
    const uint8_t* weight[kStrips];
#pragma unroll
    for (int m = 0; m < kStrips; ++m) {
      const int64_t strip = min(strip0 + m, w.n_strips - 1);
      weight[m] = w.weight + tile.group * w.group_bytes + strip * w.strip_bytes;
    }
    const uint16_t* x[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int i = t * 8 + g;
      int64_t row = tile.first + min(i, tile.n_rows - 1);
      if (call.x_rows != nullptr) row = call.x_rows[row];
      x[t] = call.x + row * call.x_stride + c * 8;
      if (call.tiles == nullptr) x[t] += static_cast<int64_t>(tile.group) * w.k;
    }
    float total[kStrips][kTiles][4] = {};
    for (int slice = 0; slice < kSlices; ++slice) {
      float sum[kStrips][kTiles][4] = {};
      const int begin = slice_begin(slice, w.n_blocks), end = slice_begin(slice + 1, w.n_blocks);
#pragma unroll 2
      for (int block = begin; block < end; ++block) {
        BlockPairs pairs[kStrips];
#pragma unroll
        for (int m = 0; m < kStrips; ++m) {
          BlockBytes<F> bytes;
          const uint8_t* at = weight[m] + slice * w.head_bytes + begin * BlockBytes<F>::kBytes;
          bytes.load(at + w.head_bytes + (block - begin) * BlockBytes<F>::kBytes, lane);
          bytes.pairs(F == WeightFormat::kFp8Tile ? at[block - begin] : 0u, pairs[m]);
        }
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const uint4 b = *reinterpret_cast<const uint4*>(x[t] + block * kBlockK);
#pragma unroll
          for (int m = 0; m < kStrips; ++m) {
            uint32_t a[4];
            pairs[m].operand(0, a);
            mma_bf16(sum[m][t], a, b.x, b.y);
            pairs[m].operand(1, a);
            mma_bf16(sum[m][t], a, b.z, b.w);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < kStrips; ++m)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i) total[m][t][i] += sum[m][t][i];
    }
    const float out_scale = w.out_scale[tile.group];
    const int64_t y_column = call.tiles == nullptr ? static_cast<int64_t>(tile.group) * w.n : 0;
#pragma unroll
    for (int m = 0; m < kStrips; ++m) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int out = (strip0 + m) * kStripRows + g + i / 2 * 8;
          const int row = t * 8 + c * 2 + i % 2;
          if (out < w.n && row < tile.n_rows)
            store(call, tile.first + row, y_column + out, total[m][t][i] * out_scale);
        }
      }
    }
  }
}

// f32 weights: no tensor cores. One warp an output: lane i adds the products of columns i, i + 32,
// ... by fma, then lanes 16, 8, 4, 2, 1 apart.
__global__ void __launch_bounds__(256) product_f32_kernel(Call call) {
  const int lane = threadIdx.x % 32;
  const int64_t n = call.w.n;
  const int64_t jobs = n * call.w.n_groups * call.n_rows;
  for (int64_t job = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32; job < jobs;
       job += static_cast<int64_t>(gridDim.x) * 8) {
    const int64_t column = job % (n * call.w.n_groups), row = job / (n * call.w.n_groups);
    const int64_t group = column / n;
    const auto* w = reinterpret_cast<const float*>(call.w.weight) + column * call.w.k;
    const uint16_t* x = call.x + row * call.x_stride + group * call.w.k;
    float sum = 0;
    for (int i = lane; i < call.w.k; i += 32) sum = fmaf(bf16_to_float(x[i]), w[i], sum);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (lane == 0) store(call, row, column, sum);
  }
}

template <WeightFormat F>
void launch_tiles(Call call, int64_t max_tiles, int tile_rows, const Gpu& gpu,
                  cudaStream_t stream) {
  const int64_t jobs = max_tiles * ((call.w.n_strips + kBlockStrips - 1) / kBlockStrips);
  const auto grid =
      static_cast<unsigned>(std::clamp<int64_t>(jobs, 1, static_cast<int64_t>(gpu.sm_count) * 16));
  if (tile_rows == 8) {
    product_kernel<F, 1><<<grid, kWarps * 32, 0, stream>>>(call);
  } else {
    product_kernel<F, kTileRows / 8><<<grid, kWarps * 32, 0, stream>>>(call);
  }
}

}  // namespace

void launch_product(const Product& p, const Gpu& gpu, cudaStream_t stream) {
  Call call = {.w = p.weight->view(),
               .x = p.x,
               .x_stride = p.x_stride,
               .x_rows = p.x_rows,
               .tiles = p.tiles,
               .n_tiles = p.n_tiles,
               .static_tiles = 0,
               .n_rows = p.n_rows,
               .y = p.y,
               .y_f32 = p.y_f32,
               .y_stride = p.y_stride};
  if (p.tiles == nullptr && p.n_rows == 0) return;
  const int tile_rows = p.tiles == nullptr && p.n_rows <= 8 ? 8 : kTileRows;
  int64_t max_tiles = p.max_tiles;
  if (p.tiles == nullptr) {
    call.static_tiles = call.w.n_groups * ((p.n_rows + tile_rows - 1) / tile_rows);
    max_tiles = call.static_tiles;
  }
  switch (p.weight->format()) {
    case WeightFormat::kFp4Row:
      launch_tiles<WeightFormat::kFp4Row>(call, max_tiles, tile_rows, gpu, stream);
      break;
    case WeightFormat::kFp8Tile:
      launch_tiles<WeightFormat::kFp8Tile>(call, max_tiles, tile_rows, gpu, stream);
      break;
    case WeightFormat::kBf16:
      launch_tiles<WeightFormat::kBf16>(call, max_tiles, tile_rows, gpu, stream);
      break;
    case WeightFormat::kF32:
      HADAL_CHECK(p.tiles == nullptr, "f32 experts");
      product_f32_kernel<<<static_cast<unsigned>(gpu.sm_count) * 8, 256, 0, stream>>>(call);
  }
}

}  // namespace hadal::cuda
