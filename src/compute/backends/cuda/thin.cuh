#pragma once

#include <algorithm>
#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/staging.cuh"
#include "compute/backends/cuda/thin_plan.h"

// Products of up to 8 rows, bound by the weights' bytes. A block has 8 warps, one for each slice of
// k (packed.h). It goes through a range of units: kStrips strips of 16 outputs, all of k. Each warp
// has a ring of its own in shared memory, that bulk copies fill with the weights of its slice,
// across units, so that the next bytes are on their way while a unit ends. Then the 8 sums of an
// output are added in order.
namespace hadal::cuda {

inline constexpr int kThinRows = 8;
inline constexpr int kThinThreads = kSlices * 32;

// Units of one product: unit u of a tile takes strips u * unit_strips + m * strip_step.
struct ThinJob {
  PackedView w;
  int32_t tile_units = 0;
  int32_t unit_strips = 1;
  int32_t strip_step = 1;
};

// A piece of a warp's stream: kBlocks blocks of kStrips strips, at most.
template <ops::WeightFormat F, int kStrips_, int kBlocks_>
struct ThinPiece {
  static constexpr ops::WeightFormat kFormat = F;
  static constexpr int kStrips = kStrips_, kBlocks = kBlocks_;
  static constexpr int kStripBytes =
      kBlocks * BlockBytes<F>::kBytes + (F == ops::WeightFormat::kFp8Tile ? kMaxSliceFields : 0);
  static constexpr int kBytes = kStrips * kStripBytes;
};

// Where a warp's copies are in the units [unit, end) of a job.
template <class Piece>
struct ThinCursor {
  static constexpr int kBlockBytes = BlockBytes<Piece::kFormat>::kBytes;
  const ThinJob* job = nullptr;
  const int32_t* tile_group = nullptr;  // null: tile i has group i
  const uint8_t* from = nullptr;        // the next piece
  int64_t strip_gap = 0;                // between the strips of a unit
  int64_t unit_gap = 0;                 // from the end of a slice to its begin in the next unit
  int32_t unit = 0, end = 0;
  int32_t left_in_tile = 0;
  int32_t slice = 0, n_blocks = 0, head_bytes = 0;
  int32_t left = 0;  // blocks of the slice

  __device__ void start(const ThinJob* of, const int32_t* groups, int first, int last,
                        int of_slice) {
    const PackedView& w = of->w;
    job = of;
    tile_group = groups;
    unit = first;
    end = last;
    slice = of_slice;
    n_blocks = slice_begin(slice + 1, w.n_blocks) - slice_begin(slice, w.n_blocks);
    head_bytes = w.head_bytes;
    strip_gap = of->strip_step * w.strip_bytes;
    unit_gap = of->unit_strips * w.strip_bytes - n_blocks * kBlockBytes - head_bytes;
    if (n_blocks == 0) unit = end;
    if (unit < end) seek();
  }
  __device__ void seek() {
    const PackedView& w = job->w;
    const int tile = unit / job->tile_units, in_tile = unit % job->tile_units;
    const int64_t group = tile_group != nullptr ? tile_group[tile] : tile;
    from = w.weight + group * w.group_bytes +
           static_cast<int64_t>(in_tile) * job->unit_strips * w.strip_bytes +
           slice_begin(slice, w.n_blocks) * kBlockBytes + slice * head_bytes;
    left_in_tile = job->tile_units - in_tile;
    left = n_blocks;
  }
  __device__ __forceinline__ bool done() const { return unit >= end; }

  // Starts the copy of the next piece, by one lane, and goes on, by all.
  __device__ __forceinline__ void copy(uint8_t* stage, uint64_t* barrier, int lane) {
    const uint32_t bytes =
        min(Piece::kBlocks, left) * kBlockBytes + (left == n_blocks ? head_bytes : 0);
    if (lane == 0) {
      barrier_arrive_expect(barrier, bytes * Piece::kStrips);
#pragma unroll
      for (int m = 0; m < Piece::kStrips; ++m)
        bulk_copy(stage + m * Piece::kStripBytes, from + m * strip_gap, bytes, barrier);
    }
    from += bytes;
    left -= Piece::kBlocks;
    if (left > 0) return;
    ++unit;
    if (--left_in_tile > 0) {
      from += unit_gap;
      left = n_blocks;
    } else if (unit < end) {
      seek();
    }
  }
};

// The ring of a warp and the two cursors that feed it, `a` before `b`.
template <class A, class B, int kStages>
struct ThinStream {
  A a;
  B b;
  uint8_t* stages;
  uint64_t* barriers;
  int32_t stage_bytes;
  int32_t n_filled = 0;
  int32_t at = 0;
  uint32_t phase = 0;

  // All lanes. Stage `stage` is one that every lane has finished reading.
  __device__ __forceinline__ void refill(int stage, int lane) {
    if (!a.done()) {
      a.copy(stages + stage * stage_bytes, barriers + stage, lane);
    } else if (!b.done()) {
      b.copy(stages + stage * stage_bytes, barriers + stage, lane);
    }
  }
  // Before the first wait(): as much as the cursors have. Once more when `b` has been started.
  __device__ __forceinline__ void fill(int lane) {
    while (n_filled < kStages && !(a.done() && b.done())) refill(n_filled++, lane);
  }
  __device__ __forceinline__ void next(int lane) {
    __syncwarp();
    refill(at, lane);
    if (++at == kStages) {
      at = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ const uint8_t* wait() {
    barrier_wait(barriers + at, phase);
    return stages + at * stage_bytes;
  }
};

// Elements between rows of x in shared memory: lanes of two neighbouring rows meet no bank twice.
__host__ __device__ constexpr int thin_x_stride(int k) {
  return k % 64 == 0 ? k + 32 : k;
}

// x[n] in shared memory = row_at(n), AQ8 or plain, filled up with zeros to `columns` (a multiple of
// 32). By all threads.
template <bool kQuantise, class RowAt>
__device__ __forceinline__ void load_thin_x(uint16_t* shared, int n_rows, int k, int columns,
                                            bool aligned, RowAt row_at) {
  constexpr int kBatch = 4;  // loads on their way
  const int octets = columns / 8, stride = thin_x_stride(columns);
  const int total = n_rows * octets;
  for (int begin = threadIdx.x; begin < (total + 31) / 32 * 32; begin += kThinThreads * kBatch) {
    Octet o[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = min(begin + j * kThinThreads, total - 1);
      o[j] = load_octet(row_at(i / octets), i % octets * 8, k, aligned);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = begin + j * kThinThreads;
      if constexpr (kQuantise) snap_octet(o[j]);  // whole warps, whole groups of four lanes
      if (i < total) {
        *reinterpret_cast<uint4*>(shared + i / octets * stride + i % octets * 8) =
            make_uint4(o[j].pair[0], o[j].pair[1], o[j].pair[2], o[j].pair[3]);
      }
    }
  }
}

// A lane's part of some blocks, from shared memory and to the tensor cores.
template <class Piece, int kCount>
struct ThinBlocks {
  BlockBytes<Piece::kFormat> bytes[kCount][Piece::kStrips];
  uint4 x[kCount];

  __device__ __forceinline__ void load(const uint8_t* stage, int lane, const uint16_t* from,
                                       bool valid) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int m = 0; m < Piece::kStrips; ++m) {
        bytes[i][m].load(stage + m * Piece::kStripBytes + i * BlockBytes<Piece::kFormat>::kBytes,
                         lane);
      }
      x[i] = make_uint4(0, 0, 0, 0);
      if (valid) x[i] = *reinterpret_cast<const uint4*>(from + i * kBlockK);
    }
  }
  __device__ __forceinline__ void multiply(const uint32_t (&fields)[Piece::kStrips][2], int place,
                                           float (&sum)[Piece::kStrips][4]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int m = 0; m < Piece::kStrips; ++m) {
        uint32_t field = 0;
        if constexpr (Piece::kFormat == ops::WeightFormat::kFp8Tile) {
          const int at = place + i;
          field = __shfl_sync(0xFFFFFFFFu, at < 32 ? fields[m][0] : fields[m][1], at % 32);
        }
        BlockPairs pairs;
        bytes[i][m].pairs(field, pairs);
        uint32_t a[4];
        pairs.operand(0, a);
        mma_bf16(sum[m], a, x[i].x, x[i].y);
        pairs.operand(1, a);
        mma_bf16(sum[m], a, x[i].z, x[i].w);
      }
    }
  }
};

// Sum of this warp's slice for one unit, pieces from the stream. x: this lane's row and columns.
template <class Piece, class Stream>
__device__ __forceinline__ void thin_unit(Stream& stream, const PackedView& w, int slice, int lane,
                                          const uint16_t* x, bool valid,
                                          float (&sum)[Piece::kStrips][4]) {
  constexpr bool kFields = Piece::kFormat == ops::WeightFormat::kFp8Tile;
  const int begin = slice_begin(slice, w.n_blocks);
  const int n_blocks = slice_begin(slice + 1, w.n_blocks) - begin;
  uint32_t fields[Piece::kStrips][2] = {};
  x += begin * kBlockK;
  for (int block = 0; block < n_blocks; block += Piece::kBlocks) {
    const uint8_t* stage = stream.wait();
    if (kFields && block == 0) {
#pragma unroll
      for (int m = 0; m < Piece::kStrips; ++m) {
        fields[m][0] = stage[m * Piece::kStripBytes + min(lane, w.head_bytes - 1)];
        fields[m][1] = stage[m * Piece::kStripBytes + min(lane + 32, w.head_bytes - 1)];
      }
      stage += w.head_bytes;
    }
    if (block + Piece::kBlocks <= n_blocks) {
      ThinBlocks<Piece, Piece::kBlocks> blocks;
      blocks.load(stage, lane, x + block * kBlockK, valid);
      blocks.multiply(fields, block, sum);
    } else {
#pragma unroll 1
      for (int i = 0; block + i < n_blocks; ++i) {
        ThinBlocks<Piece, 1> one;
        one.load(stage + i * BlockBytes<Piece::kFormat>::kBytes, lane, x + (block + i) * kBlockK,
                 valid);
        one.multiply(fields, block + i, sum);
      }
    }
    stream.next(lane);
  }
}

// The rows of a tile: their number, and where in shared memory this lane's row (lane / 4) is.
struct ThinTile {
  const uint16_t* x;
  int32_t n_rows;
};

// Units [first, last) of a job. `enter(tile)` is called by all threads when the tile changes; it
// may load x, between barriers of the block. `leave(tile, unit in tile, output of 16, row, sums)`
// by one thread an output. `partial`: 2 * 8 * kStrips * 128 floats. `n_done` counts the block's
// units.
template <class Piece, class Stream, class Enter, class Leave>
__device__ __forceinline__ void thin_units(Stream& stream, const ThinJob& job, int first, int last,
                                           float* partial, int& n_done, Enter enter, Leave leave) {
  constexpr int kStrips = Piece::kStrips;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, c = lane % 4;
  int tile = -1;
  ThinTile rows = {};
  for (int unit = first; unit < last; ++unit, ++n_done) {
    if (unit / job.tile_units != tile) {
      tile = unit / job.tile_units;
      rows = enter(tile);
    }
    float sum[kStrips][4] = {};
    thin_unit<Piece>(stream, job.w, warp, lane, rows.x + c * 8, g < rows.n_rows, sum);
    float* buffer = partial + n_done % 2 * (kSlices * kStrips * 128);
#pragma unroll
    for (int m = 0; m < kStrips; ++m) {
      *reinterpret_cast<float4*>(buffer + (warp * kStrips + m) * 128 + lane * 4) =
          make_float4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]);
    }
    __syncthreads();
    // The halves of the block take turns.
    const int place = static_cast<int>(threadIdx.x) - n_done % 2 * 128;
    if (place < 0 || place >= 128) continue;
    const int row = place / 4 % 4 * 2 + place % 2;
    if (row >= rows.n_rows) continue;
    float total[kStrips] = {};
#pragma unroll
    for (int s = 0; s < kSlices; ++s)
#pragma unroll
      for (int m = 0; m < kStrips; ++m) total[m] += buffer[(s * kStrips + m) * 128 + place];
    leave(tile, unit % job.tile_units, place / 16 + place % 4 / 2 * 8, row, total);
  }
}

}  // namespace hadal::cuda
