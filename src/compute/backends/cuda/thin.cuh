#pragma once

#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/staging.cuh"

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

// A piece of a warp's stream: some blocks of kStrips strips.
template <ops::WeightFormat F, int kStrips>
struct ThinPiece {
  static constexpr int kBlocks = F == ops::WeightFormat::kFp4Row    ? 5
                                 : F == ops::WeightFormat::kFp8Tile ? (kStrips == 1 ? 5 : 3)
                                                                    : 2;
  static constexpr int kStripBytes =
      kBlocks * BlockBytes<F>::kBytes + (F == ops::WeightFormat::kFp8Tile ? kMaxSliceFields : 0);
  static constexpr int kBytes = kStrips * kStripBytes;
};

// Where a warp's copies are: the units [unit, end) of a job from `block` of its slice on.
template <ops::WeightFormat F, int kStrips>
struct ThinCursor {
  using Piece = ThinPiece<F, kStrips>;
  const ThinJob* job = nullptr;
  const int32_t* tile_group = nullptr;  // null: tile i has group i
  int32_t unit = 0, end = 0;
  int32_t begin_block = 0, end_block = 0, block = 0;
  int64_t slice_offset = 0;

  __device__ void start(const ThinJob* of, const int32_t* groups, int first, int last, int slice) {
    job = of;
    tile_group = groups;
    unit = first;
    end = last;
    begin_block = block = slice_begin(slice, of->w.n_blocks);
    end_block = slice_begin(slice + 1, of->w.n_blocks);
    slice_offset =
        static_cast<int64_t>(begin_block) * BlockBytes<F>::kBytes + slice * of->w.head_bytes;
    if (begin_block == end_block) unit = end;
  }
  __device__ bool done() const { return unit >= end; }

  // Starts the copy of the next piece; by one lane. advance() by all.
  __device__ void copy(uint8_t* stage, uint64_t* barrier) const {
    const PackedView& w = job->w;
    const int tile = unit / job->tile_units, in_tile = unit % job->tile_units;
    const int64_t group = tile_group != nullptr ? tile_group[tile] : tile;
    const int n_blocks = min(Piece::kBlocks, end_block - block);
    const bool head = block == begin_block;
    const uint32_t bytes = n_blocks * BlockBytes<F>::kBytes + (head ? w.head_bytes : 0);
    const uint8_t* from = w.weight + group * w.group_bytes +
                          static_cast<int64_t>(in_tile) * job->unit_strips * w.strip_bytes +
                          slice_offset +
                          (head ? 0 : w.head_bytes + (block - begin_block) * BlockBytes<F>::kBytes);
    barrier_arrive_expect(barrier, bytes * kStrips);
#pragma unroll
    for (int m = 0; m < kStrips; ++m)
      bulk_copy(stage + m * Piece::kStripBytes, from + m * job->strip_step * w.strip_bytes, bytes,
                barrier);
  }
  __device__ void advance() {
    block += Piece::kBlocks;
    if (block < end_block) return;
    block = begin_block;
    ++unit;
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
      if (lane == 0) a.copy(stages + stage * stage_bytes, barriers + stage);
      a.advance();
    } else if (!b.done()) {
      if (lane == 0) b.copy(stages + stage * stage_bytes, barriers + stage);
      b.advance();
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
  const int octets = columns / 8, stride = thin_x_stride(columns);
  const int total = n_rows * octets;
  for (int i = threadIdx.x; i < (total + 31) / 32 * 32; i += kThinThreads) {
    const int row = min(i / octets, n_rows - 1), column = i % octets * 8;
    Octet o = load_octet(row_at(row), column, k, aligned);
    if constexpr (kQuantise) snap_octet(o);  // groups of four lanes are whole, warps too
    if (i < total) {
      *reinterpret_cast<uint4*>(shared + row * stride + column) =
          make_uint4(o.pair[0], o.pair[1], o.pair[2], o.pair[3]);
    }
  }
}

// Sum of this warp's slice for one unit, pieces from the stream.
template <ops::WeightFormat F, int kStrips, class Stream>
__device__ __forceinline__ void thin_unit(Stream& stream, const PackedView& w, int slice, int lane,
                                          const uint16_t* x, bool valid, float (&sum)[kStrips][4]) {
  using Piece = ThinPiece<F, kStrips>;
  constexpr bool kFields = F == ops::WeightFormat::kFp8Tile;
  const int begin = slice_begin(slice, w.n_blocks), end = slice_begin(slice + 1, w.n_blocks);
  uint32_t fields[kStrips][2] = {};
  for (int block = begin; block < end; block += Piece::kBlocks) {
    const uint8_t* stage = stream.wait();
    int head = 0;
    if (kFields && block == begin) {
      head = w.head_bytes;
#pragma unroll
      for (int m = 0; m < kStrips; ++m) {
        fields[m][0] = stage[m * Piece::kStripBytes + min(lane, head - 1)];
        fields[m][1] = stage[m * Piece::kStripBytes + min(lane + 32, head - 1)];
      }
    }
#pragma unroll
    for (int i = 0; i < Piece::kBlocks; ++i) {
      if (block + i >= end) break;
      uint4 b = make_uint4(0, 0, 0, 0);
      if (valid) b = *reinterpret_cast<const uint4*>(x + (block + i) * kBlockK);
#pragma unroll
      for (int m = 0; m < kStrips; ++m) {
        BlockBytes<F> bytes;
        bytes.load(stage + m * Piece::kStripBytes + head + i * BlockBytes<F>::kBytes, lane);
        uint32_t field = 0;
        if constexpr (kFields) {
          const int place = block + i - begin;
          field = __shfl_sync(0xFFFFFFFFu, place < 32 ? fields[m][0] : fields[m][1], place % 32);
        }
        BlockPairs pairs;
        bytes.pairs(field, pairs);
        uint32_t a[4];
        pairs.operand(0, a);
        mma_bf16(sum[m], a, b.x, b.y);
        pairs.operand(1, a);
        mma_bf16(sum[m], a, b.z, b.w);
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
template <ops::WeightFormat F, int kStrips, class Stream, class Enter, class Leave>
__device__ __forceinline__ void thin_units(Stream& stream, const ThinJob& job, int first, int last,
                                           float* partial, int& n_done, Enter enter, Leave leave) {
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
    thin_unit<F, kStrips>(stream, job.w, warp, lane, rows.x + c * 8, g < rows.n_rows, sum);
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
