#pragma once

#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/list_jobs.h"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/wide_jobs.h"

// The stages of lists.cuh and the warps that bring them.
namespace hadal::cuda {

inline constexpr int kListConsumers = kListStrips * 32;  // threads that multiply
inline constexpr int kCopiers = 4;                       // warps that copy: a warpgroup
inline constexpr int kListThreads = kListConsumers + kCopiers * 32;
inline constexpr int kCopyRegisters = 64, kProductRegisters = 104;  // of the 96 of a thread

// A stage: blocks of all strips of a job and of its rows. FP4: 8 blocks, wherever slices end: 2176
// bytes of a strip, 17 lines, which begin with a line in memory and in the stage (copies whose ends
// lie differently in a line take 1.3 times as long on an H200). FP8: 4 blocks of one slice, with
// its exponent fields before the first.
template <ops::WeightFormat F>
struct ListShape {
  static constexpr ops::WeightFormat kFormat = F;
  static constexpr bool kFields = F == ops::WeightFormat::kFp8Tile;
  static constexpr int kBlocks = kFields ? 4 : 8;
  static constexpr int kBlockBytes = BlockBytes<F>::kBytes;
  static constexpr int kStripBytes = 2176;
  static constexpr int kWeightBytes = kListStrips * kStripBytes;
  static constexpr int kTileBytes = kBlocks * 512;  // of 8 rows
  static_assert(kBlocks * kBlockBytes + (kFields ? kMaxSliceFields : 0) <= kStripBytes);
};
inline constexpr int kListStageBytes = kListStrips * 2176 + kTileRows / 8 * 8 * 512;
inline constexpr int kListStages = 3;
inline constexpr int kListSharedBytes = kListStages * kListStageBytes + 2 * kListStages * 8;

struct ListCall {
  PackedView w;
  const uint16_t* x;
  int64_t x_blocks;      // of a row of x
  const RowTile* tiles;  // or null:
  const int32_t* n_tiles;
  WideSpace space;
  uint16_t* y;
  int64_t y_stride;
  bool paired;  // two neighbouring outputs may be stored at once
};

struct ListRing {
  uint32_t stages, full, empty;
  int at = 0;
  uint32_t phase = 0;

  __device__ explicit ListRing(const uint8_t* shared)
      : stages(opaque(shared_address(shared))),
        full(stages + kListStages * kListStageBytes),
        empty(full + kListStages * 8) {}
  __device__ __forceinline__ void next() {
    if (++at == kListStages) {
      at = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ uint32_t stage() const { return stages + at * kListStageBytes; }
  __device__ __forceinline__ void wait_full() const { shared_barrier_wait(full + at * 8, phase); }
  __device__ __forceinline__ void wait_empty() const {
    shared_barrier_wait(empty + at * 8, phase ^ 1);
  }
  // A warp has read what it wants of a stage. compute-sanitizer's race checker sees the order only
  // for the lane that arrives, not for those that it has waited for, and reports their loads.
  __device__ __forceinline__ void release(int stage, int lane) const {
    __syncwarp();
    if (lane == 0) shared_barrier_arrive(empty + stage * 8);
  }
};

// Where a thread is in the blocks of a job: stages of S::kBlocks blocks at most, for FP8 none of
// two slices.
template <class S>
struct ListBlocks {
  int n_blocks;
  int block = 0, slice = 0, end;  // of the slice

  __device__ explicit ListBlocks(int n) : n_blocks(n), end(slice_begin(1, n)) {}
  __device__ __forceinline__ bool done() const { return block >= n_blocks; }
  // A slice ends before block `at`: the next one with blocks begins.
  __device__ __forceinline__ bool turn(int at) {
    if (at != end) return false;
    do {
      ++slice;
      end = slice_begin(slice + 1, n_blocks);
    } while (at == end);
    return true;
  }
  // Of the stage at `block`, behind turn(block).
  __device__ __forceinline__ int stage_blocks() const {
    return min(S::kBlocks, (S::kFields ? end : n_blocks) - block);
  }
  __device__ __forceinline__ bool at_slice_begin() const {
    return block == slice_begin(slice, n_blocks);
  }
};

// A copying warp's part of a job: every kCopiers-th strip and row tile, one lane. Copies by lanes
// with addresses of their own become a loop of some 140 clocks each.
template <class S>
struct ListCopies {
  const uint8_t* weight;         // of this warp's first strip
  const uint8_t* x;              // of its first 8 rows
  int64_t strip_step, row_step;  // to its next ones
  int n_strips, n_row_tiles;     // of this warp
  // A tile's rows are read once a job. Weights on their way through L2 would drive them out.
  uint64_t hint = read_once();

  __device__ ListCopies(const ListCall& call, const WideJob& job, int copier)
      : weight(call.w.weight + job.tile.group * call.w.group_bytes +
               (job.first_strip + copier) * call.w.strip_bytes),
        x(reinterpret_cast<const uint8_t*>(call.x) +
          (job.tile.first / 8 + copier) * call.x_blocks * 512),
        strip_step(kCopiers * call.w.strip_bytes),
        row_step(kCopiers * call.x_blocks * 512),
        n_strips(max(job.n_strips - copier + kCopiers - 1, 0) / kCopiers),
        n_row_tiles(max((job.tile.n_rows + 7) / 8 - copier + kCopiers - 1, 0) / kCopiers) {}
  // The stage at `at`: all of its bytes are expected here.
  __device__ __forceinline__ void copy_weights(const PackedView& w, const ListBlocks<S>& at,
                                               uint32_t stage, uint32_t full, int copier) const {
    const int n = at.stage_blocks();
    const int head_bytes = S::kFields && at.at_slice_begin() ? w.head_bytes : 0;
    const uint32_t bytes = n * S::kBlockBytes + head_bytes;
    const uint8_t* from = weight + static_cast<int64_t>(at.block) * S::kBlockBytes;
    if constexpr (S::kFields) from += (at.slice + 1) * w.head_bytes - head_bytes;
    const uint32_t to = stage + copier * S::kStripBytes;
    shared_barrier_expect(full, n_strips * bytes + n_row_tiles * (n * 512));
#pragma unroll
    for (int i = 0; i < kListStrips / kCopiers; ++i) {
      if (i < n_strips)
        shared_bulk_copy(to + i * (kCopiers * S::kStripBytes), from + i * strip_step, bytes, full,
                         hint);
    }
  }
  __device__ __forceinline__ void copy_rows(const ListBlocks<S>& at, uint32_t stage, uint32_t full,
                                            int copier) const {
    const uint32_t to = stage + S::kWeightBytes + copier * S::kTileBytes;
    const uint32_t bytes = at.stage_blocks() * 512;
    const uint8_t* from = x + static_cast<int64_t>(at.block) * 512;
#pragma unroll
    for (int i = 0; i < kTileRows / 8 / kCopiers; ++i) {
      if (i >= n_row_tiles) break;
      shared_bulk_copy(to + i * (kCopiers * S::kTileBytes), from + i * row_step, bytes, full);
    }
  }
};

// Brings a job's stages. Before the first one of the kernel: its weights, as far as the ring has
// room, then wait_for_previous().
template <class S>
__device__ void produce(const ListCall& call, const WideJob& job, ListRing& ring, int copier,
                        bool& waited) {
  const ListCopies<S> copies(call, job, copier);
  int n_early = 0;  // stages, from here on, whose weights are on their way
  if (!waited) {
    for (ListBlocks<S> at(call.w.n_blocks); !at.done() && n_early < kListStages; ++n_early) {
      at.turn(at.block);
      copies.copy_weights(call.w, at, ring.stages + n_early * kListStageBytes,
                          ring.full + n_early * 8, copier);
      at.block += at.stage_blocks();
    }
    wait_for_previous();
    let_next_start();
    waited = true;
  }
  for (ListBlocks<S> at(call.w.n_blocks); !at.done();) {
    at.turn(at.block);
    const uint32_t full = ring.full + ring.at * 8;
    if (n_early > 0) {
      --n_early;
    } else {
      ring.wait_empty();
      copies.copy_weights(call.w, at, ring.stage(), full, copier);
    }
    copies.copy_rows(at, ring.stage(), full, copier);
    at.block += at.stage_blocks();
    ring.next();
  }
}

}  // namespace hadal::cuda
