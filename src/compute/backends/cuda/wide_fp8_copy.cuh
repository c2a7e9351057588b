#pragma once

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/fp8_places.h"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/product_roles.h"
#include "compute/backends/cuda/ring.cuh"
#include "compute/backends/cuda/wide_jobs.h"

// What a block of wide_fp8.cu has in shared memory, and the warps that bring it there.
namespace hadal::cuda::fp8 {

using ops::WeightFormat;

inline constexpr int kRingBytes = 220 << 10;
inline constexpr int kRowTiles = kFp8TileRows / 8;
static_assert(kFp8Strips == kWarpgroups * 4 && kRowTiles == 32);

// What a strip's window of FP8 weights says besides its codes: fields of the blocks, and how many
// 16 bytes of heads stand between the first block and each.
struct WindowInfo {
  uint32_t fields, gaps;
};

template <WeightFormat F>
struct Shape {
  static constexpr bool kFp4 = F == WeightFormat::kFp4Row;
  static constexpr int kBlockBytes = kFp4 ? 272 : 512;
  static constexpr int kStripBytes = kWindowBlocks * kBlockBytes + (kFp4 ? 0 : kWindowHeadBytes);
  static constexpr int kInfoAt = kFp8Strips * kStripBytes;
  static constexpr int kRowsAt = (kInfoAt + kFp8Strips * 16 + 127) / 128 * 128;
  static constexpr int kScalesAt = kRowsAt + kRowTiles * kRowTileBytes;
  static constexpr int kStageBytes = (kScalesAt + kRowTiles * kRowTileScales + 127) / 128 * 128;
  static constexpr int kStages = kRingBytes / kStageBytes;
  static constexpr int kTableAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kTableAt + (kFp4Powers + 1) / 2 * 16;
  static constexpr int kSharedBytes = kBarriersAt + 2 * kStages * 8;
  static_assert(kSharedBytes <= 227 << 10);
};

struct Call {
  PackedView w;
  const uint8_t* x;
  int64_t x_row_tiles;  // of a window
  int32_t n_windows;
  const RowTile* tiles;
  const int32_t* n_tiles;
  Fp8Space space;  // without a list
  uint16_t* y;
  int64_t y_stride;
};

__device__ inline int64_t count_jobs(const Call& call) {
  return call.tiles != nullptr ? *call.n_tiles * call.space.across() : call.space.n_jobs();
}
__device__ inline Fp8Job job_at(const Call& call, int64_t index) {
  if (call.tiles == nullptr) return call.space.at(index);
  const int64_t across = call.space.across();
  const RowTile tile = call.tiles[index / across];
  const auto strip = static_cast<int32_t>(index % across) * kFp8Strips;
  return {tile.group, tile.first, tile.n_rows, strip, fewer(kFp8Strips, call.w.n_strips - strip)};
}

// The bytes of a window of every strip, window after window: in kFp8Tile with heads of slices
// between blocks.
template <WeightFormat F>
struct WindowWalk {
  int slice = 0;  // of the last block seen
  int64_t at = 0;
  int32_t bytes = 0;

  __device__ void to_block(const PackedView& w, int block) {
    while (slice_begin(slice + 1, w.n_blocks) <= block) ++slice;
  }
  __device__ void to_window(const PackedView& w, int window) {
    const int first = window * kWindowBlocks;
    const int last = min(first + kWindowBlocks, w.n_blocks) - 1;
    if constexpr (F == WeightFormat::kFp4Row) {
      at = static_cast<int64_t>(first) * Shape<F>::kBlockBytes;
      bytes = (last + 1 - first) * Shape<F>::kBlockBytes;
    } else {
      to_block(w, first);
      at = fp8_block_at(first, slice, w.head_bytes);
      to_block(w, last);
      bytes = static_cast<int32_t>(fp8_block_at(last, slice, w.head_bytes) - at) + 512;
    }
  }
};

// The warps that bring a job's stages: 0 the rows, 1 and 2 four strips each, one thread a copy.
// Copies by many lanes at once would go one after the other too, and slower.
template <WeightFormat F>
__device__ void copy_job(const Call& call, const Fp8Job& job, int role, Ring<Shape<F>>& ring) {
  using S = Shape<F>;
  const bool lead = threadIdx.x % 32 == 0;
  const int tiles = (job.n_rows + 7) / 8;
  const int first_strip = (role - 1) * 4, last_strip = min(first_strip + 4, job.n_strips);
  const uint8_t* weight = call.w.weight + job.group * call.w.group_bytes +
                          static_cast<int64_t>(job.first_strip) * call.w.strip_bytes;
  WindowWalk<F> walk;
  for (int window = 0; window < call.n_windows; ++window) {
    walk.to_window(call.w, window);
    barrier_wait(ring.empty + ring.at, ring.phase ^ 1);
    uint64_t* full = ring.full + ring.at;
    if (lead && role == 0) {
      barrier_arrive_expect(full,
                            job.n_strips * walk.bytes + tiles * (kRowTileBytes + kRowTileScales));
      const uint8_t* rows = call.x + window * (call.x_row_tiles * (kRowTileBytes + kRowTileScales));
      const uint8_t* scales = rows + call.x_row_tiles * kRowTileBytes;
      const int64_t first = job.first_row / 8;
      bulk_copy(ring.stage() + S::kRowsAt, rows + first * kRowTileBytes, tiles * kRowTileBytes,
                full);
      bulk_copy(ring.stage() + S::kScalesAt, scales + first * kRowTileScales,
                tiles * kRowTileScales, full);
    } else if (lead) {
#pragma unroll 1
      for (int strip = first_strip; strip < last_strip; ++strip)
        bulk_copy(ring.stage() + strip * S::kStripBytes,
                  weight + strip * call.w.strip_bytes + walk.at, walk.bytes, full);
    }
    ring.next();
  }
}

// The warp that brings what WindowInfo says, lane 4 s + i of block i of strip s, a window ahead.
__device__ inline void inform_job(const Call& call, const Fp8Job& job,
                                  Ring<Shape<WeightFormat::kFp8Tile>>& ring) {
  using S = Shape<WeightFormat::kFp8Tile>;
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, i = lane % 4;
  const int strip = min(lane / 4, job.n_strips - 1);
  const uint8_t* weight = w.weight + job.group * w.group_bytes +
                          static_cast<int64_t>(job.first_strip + strip) * w.strip_bytes;
  WindowWalk<WeightFormat::kFp8Tile> walk;
  uint32_t field = 0, gap = 0;
  const auto look = [&](int window) {
    const int block = min(window * kWindowBlocks + i, w.n_blocks - 1);
    walk.to_block(w, block);
    gap = (walk.slice - __shfl_sync(0xFFFFFFFFu, walk.slice, lane - i)) * w.head_bytes / 16;
    field = weight[fp8_field_at(block, walk.slice, w.n_blocks, w.head_bytes)];
  };
  look(0);
  for (int window = 0; window < call.n_windows; ++window) {
    const uint32_t field_now = field, gap_now = gap;
    if (window + 1 < call.n_windows) look(window + 1);
    barrier_wait(ring.empty + ring.at, ring.phase ^ 1);
    uint8_t* info = ring.stage() + S::kInfoAt + lane / 4 * 16 + i;
    info[0] = static_cast<uint8_t>(field_now);
    info[4] = static_cast<uint8_t>(gap_now);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.full + ring.at);
    ring.next();
  }
}

}  // namespace hadal::cuda::fp8
