#pragma once

#include <algorithm>
#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/staging.cuh"
#include "compute/backends/cuda/thin_plan.h"

// Products of up to 8 rows, bound by the weights' bytes. A block is made of teams of 8 warps, one
// for each slice of k (packed.h); they share x, so that it is read and quantised once. A team goes
// through a range of units: kStrips strips of 16 outputs, all of k. Each warp has a ring of its own
// in shared memory, that bulk copies fill with the weights of its slice, across units, so that the
// next bytes are on their way while a unit ends. Then the 8 sums of an output are added in order.
namespace hadal::cuda {

inline constexpr int kThinThreads = kSlices * 32;  // of a team

// Barriers of a block's rings, filled up to a line.
__host__ __device__ constexpr int thin_barrier_bytes(int n_warps, int n_stages) {
  return (n_warps * n_stages * 8 + 127) / 128 * 128;
}
// True for one lane of the warp, which all of them call.
__device__ __forceinline__ bool one_lane() {
  uint32_t one;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(one));
  return one != 0;
}
// A value that all lanes of a warp have: where the compiler knows that, it goes to uniform
// registers, and branches by it need no meeting points.
__device__ __forceinline__ int uniform(int value) {
  return __shfl_sync(0xFFFFFFFFu, value, 0);
}
__device__ __forceinline__ int warp_of_block() {
  return uniform(static_cast<int>(threadIdx.x) / 32);
}
// Waits for the threads of a team (barrier 0 is the block's).
__device__ __forceinline__ void team_sync() {
  asm volatile("bar.sync %0, %1;" ::"r"(warp_of_block() / kSlices + 1), "n"(kThinThreads)
               : "memory");
}

// A bulk copy takes up to 1.6 times as long if its two ends do not begin at the same place of a
// line.
inline constexpr int kLineBytes = 128;
inline constexpr int kMaxStages = 10;

// A piece of a warp's stream: kBlocks blocks of kStrips strips, at most. kAtOnce of them are read
// before they are multiplied.
template <ops::WeightFormat F, int kStrips_, int kBlocks_, int kAtOnce_ = kBlocks_>
struct ThinPiece {
  static constexpr ops::WeightFormat kFormat = F;
  static constexpr int kStrips = kStrips_, kBlocks = kBlocks_, kAtOnce = kAtOnce_;
  static constexpr int kBlockBytes = BlockBytes<F>::kBytes;
  // In a ring: codes need room for kLines, since their slices begin anywhere in a line.
  static constexpr int kMost = kBlocks * kBlockBytes +
                               (F == ops::WeightFormat::kFp8Tile ? kMaxSliceFields : 0) +
                               (F == ops::WeightFormat::kBf16 ? 0 : kLineBytes - 16);
  static constexpr int kStripBytes = (kMost + kLineBytes - 1) / kLineBytes * kLineBytes;
  static constexpr int kBytes = kStrips * kStripBytes;
};

// Units of one product: unit u of a tile takes strips u * unit_strips + m * strip_step.
struct ThinJob {
  PackedView w;
  int32_t tile_units = 0;
  int32_t unit_strips = 1;
  int64_t strip_gap = 0;  // bytes of strip_step strips
  // Of a piece in a ring.
  int32_t piece_blocks = 0, block_bytes = 0, strip_room = 0;
  bool listed = false;  // groups of the tiles come from a list; otherwise tile i has group i

  template <class Piece>
  static ThinJob make(const PackedView& w, int32_t tile_units, int32_t unit_strips,
                      int32_t strip_step, bool listed) {
    return {w,
            tile_units,
            unit_strips,
            strip_step * w.strip_bytes,
            Piece::kBlocks,
            Piece::kBlockBytes,
            Piece::kStripBytes,
            listed};
  }
};

// Where a warp's copies are in a team's units of several jobs, one job behind the other.
template <int kStrips>
struct ThinFeed {
  const ThinJob* jobs = nullptr;
  const int2* units = nullptr;  // of the team, by job: [first, last)
  const int32_t* tile_group = nullptr;
  const uint8_t* from = nullptr;  // the next piece
  int32_t slice = 0;
  int32_t job = -1, unit = 0, end = 0;  // all units of all jobs up to `job` are on their way at end
  int32_t left = 0, n_blocks = 0;       // of the slice
  int32_t left_in_tile = 0;
  uint64_t hint = read_once();  // or weights on their way through L2 drive out rows and code

  // Goes on with the jobs before `n_jobs`, whose units are known now.
  __device__ void open(int n_jobs) {
    while (unit >= end && job + 1 < n_jobs) {
      ++job;
      unit = uniform(units[job].x);
      end = uniform(units[job].y);
      const int all = jobs[job].w.n_blocks;
      n_blocks = slice_begin(slice + 1, all) - slice_begin(slice, all);
      if (n_blocks == 0) unit = end;
      if (unit < end) seek();
    }
  }
  __device__ void seek() {
    const ThinJob& of = jobs[job];
    const PackedView& w = of.w;
    const int tile = unit / of.tile_units, in_tile = unit % of.tile_units;
    const int64_t group = tile_group != nullptr && of.listed ? uniform(tile_group[tile]) : tile;
    from = w.weight + group * w.group_bytes +
           static_cast<int64_t>(in_tile) * of.unit_strips * w.strip_bytes +
           slice_begin(slice, w.n_blocks) * of.block_bytes + slice * w.head_bytes;
    left_in_tile = of.tile_units - in_tile;
    left = n_blocks;
  }
  __device__ __forceinline__ bool done() const { return unit >= end; }

  // Starts the copy of the next piece, by one lane, and goes on, by all.
  __device__ __forceinline__ void copy(uint8_t* stage, uint64_t* barrier, int n_jobs) {
    const ThinJob& of = jobs[job];
    const uint32_t bytes =
        min(of.piece_blocks, left) * of.block_bytes + (left == n_blocks ? of.w.head_bytes : 0);
    if (one_lane()) {
      barrier_arrive_expect(barrier, bytes * kStrips);
#pragma unroll
      for (int m = 0; m < kStrips; ++m)
        shared_bulk_copy(shared_address(stage + m * of.strip_room), from + m * of.strip_gap, bytes,
                         shared_address(barrier), hint);
    }
    from += bytes;
    left -= of.piece_blocks;
    if (left > 0) return;
    if (++unit >= end) {
      open(n_jobs);
    } else if (--left_in_tile > 0) {
      from += of.unit_strips * of.w.strip_bytes - n_blocks * of.block_bytes - of.w.head_bytes;
      left = n_blocks;
    } else {
      seek();
    }
  }
};

// The ring of a warp and what feeds it.
template <int kStrips>
struct ThinStream {
  ThinFeed<kStrips> feed;
  uint8_t* stages;
  uint64_t* barriers;
  int32_t stage_bytes, n_stages;
  int32_t n_filled = 0;
  int32_t at = 0;
  uint32_t phase = 0;
  uint32_t begins =
      0;  // where in its line the piece of a stage begins, in 16 bytes: 3 bits a stage

  // All lanes. `ring_barriers` and `rings` are the block's.
  __device__ __forceinline__ ThinStream(const ThinJob* jobs, const int2* units,
                                        const int32_t* tile_group, uint8_t* ring_barriers,
                                        uint8_t* rings, int of_stages, int of_bytes)
      : stage_bytes(of_bytes), n_stages(of_stages) {
    const int lane = threadIdx.x % 32, warp = warp_of_block();
    feed.jobs = jobs;
    feed.units = units;
    feed.tile_group = tile_group;
    feed.slice = warp % kSlices;
    barriers = reinterpret_cast<uint64_t*>(ring_barriers) + warp * n_stages;
    stages = rings + warp * n_stages * stage_bytes;
    if (lane < n_stages) {
      barrier_init(barriers + lane, 1);
      barrier_init_done();
    }
    __syncwarp();
  }
  // Before the first wait(): as much as the first `n_jobs` have. All lanes.
  __device__ __forceinline__ void fill(int n_jobs) {
    feed.open(n_jobs);
    for (; n_filled < n_stages && !feed.done(); ++n_filled) copy(n_filled, n_jobs);
  }
  __device__ __forceinline__ void copy(int stage, int n_jobs) {
    const uint32_t begin = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(feed.from)) / 16 % 8;
    begins = (begins & ~(7u << 3 * stage)) | begin << 3 * stage;
    feed.copy(stages + stage * stage_bytes + begin * 16, barriers + stage, n_jobs);
  }
  // Every lane has finished reading what wait() gave.
  __device__ __forceinline__ void next(int n_jobs) {
    __syncwarp();
    if (!feed.done()) copy(at, n_jobs);
    if (++at == n_stages) {
      at = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ const uint8_t* wait() {
    barrier_wait(barriers + at, phase);
    return stages + at * stage_bytes + (begins >> 3 * at) % 8 * 16;
  }
};

// Elements between rows of x in shared memory: lanes of two neighbouring rows meet no bank twice.
__host__ __device__ constexpr int thin_x_stride(int k) {
  return k % 64 == 0 ? k + 32 : k;
}

// x[n] in shared memory = row_at(n), AQ8 or plain, filled up with zeros to `columns` (a multiple of
// 32). By all threads of the block.
template <bool kQuantise, class RowAt>
__device__ __forceinline__ void load_thin_x(uint16_t* shared, int n_rows, int k, int columns,
                                            bool aligned, RowAt row_at) {
  constexpr int kBatch = 4;  // loads on their way: of 4 rows, or of fewer rows at several places
  const int octets = columns / 8, stride = thin_x_stride(columns);
  const int log_rows = n_rows > 2 ? 2 : n_rows - 1, rows = 1 << log_rows;
  const int lane = threadIdx.x % 32, step = blockDim.x;
  for (int begin = threadIdx.x - lane; begin < octets; begin += step * (kBatch >> log_rows)) {
    for (int first = 0; first < n_rows; first += rows) {
      Octet o[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int row = first + (j & (rows - 1)), at = begin + (j >> log_rows) * step;
        if (row < n_rows && at < octets)
          o[j] = load_octet(row_at(row), min(at + lane, octets - 1) * 8, k, aligned);
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int row = first + (j & (rows - 1)), at = begin + (j >> log_rows) * step;
        if (row >= n_rows || at >= octets) continue;
        if constexpr (kQuantise) snap_octet(o[j]);  // whole warps, whole groups of four lanes
        if (at + lane < octets) {
          *reinterpret_cast<uint4*>(shared + row * stride + (at + lane) * 8) =
              make_uint4(o[j].pair[0], o[j].pair[1], o[j].pair[2], o[j].pair[3]);
        }
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
template <class Piece>
__device__ __forceinline__ void thin_unit(ThinStream<Piece::kStrips>& stream, int n_jobs,
                                          const PackedView& w, int slice, int lane,
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
#pragma unroll 1
      for (int i = 0; i < Piece::kBlocks; i += Piece::kAtOnce) {
        ThinBlocks<Piece, Piece::kAtOnce> blocks;
        blocks.load(stage + i * BlockBytes<Piece::kFormat>::kBytes, lane, x + (block + i) * kBlockK,
                    valid);
        blocks.multiply(fields, block + i, sum);
      }
    } else {
#pragma unroll 1
      for (int i = 0; block + i < n_blocks; ++i) {
        ThinBlocks<Piece, 1> one;
        one.load(stage + i * BlockBytes<Piece::kFormat>::kBytes, lane, x + (block + i) * kBlockK,
                 valid);
        one.multiply(fields, block + i, sum);
      }
    }
    stream.next(n_jobs);
  }
}

// The rows of a tile: their number, and where in shared memory this lane's row (lane / 4) is.
struct ThinTile {
  const uint16_t* x;
  int32_t n_rows;
};

// Pairs of rows: what a team keeps of a unit's sums.
__host__ __device__ constexpr int thin_pairs(int n_rows) {
  return (n_rows + 1) / 2;
}
// Bytes of a team's sums of up to `n_rows` rows, two units of them.
__host__ __device__ constexpr int thin_sum_bytes(int n_strips, int n_rows) {
  return 2 * kSlices * n_strips * thin_pairs(n_rows) * 32 * 4;
}

// Units [first, last) of a job, by a team. `enter(tile)` gives the rows of a tile. `leave(tile,
// unit in tile, output of 16, row, sums)` is called by one thread an output. `sums`: the team's,
// for `most_rows` rows a tile. `n_done` counts the team's units.
template <class Piece, class Enter, class Leave>
__device__ __forceinline__ void thin_units(ThinStream<Piece::kStrips>& stream, int n_jobs,
                                           const ThinJob& job, int2 units, float* sums,
                                           int most_rows, int& n_done, Enter enter, Leave leave) {
  constexpr int kStrips = Piece::kStrips;
  if (units.x >= units.y) return;
  const int lane = threadIdx.x % 32, slice = warp_of_block() % kSlices;
  const int g = lane / 4, c = lane % 4;
  const int pairs = thin_pairs(most_rows);
  int tile = units.x / job.tile_units, in_tile = units.x % job.tile_units;
  ThinTile rows = enter(tile);
  for (int unit = units.x; unit < units.y; ++unit, ++n_done) {
    float sum[kStrips][4] = {};
    thin_unit<Piece>(stream, n_jobs, job.w, slice, lane, rows.x + c * 8, g < rows.n_rows, sum);
    float* buffer = sums + n_done % 2 * (kSlices * kStrips * 32) * pairs;
    if (c < pairs) {
#pragma unroll
      for (int m = 0; m < kStrips; ++m) {
        *reinterpret_cast<float4*>(buffer + ((slice * kStrips + m) * pairs + c) * 32 + g * 4) =
            make_float4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]);
      }
    }
    team_sync();
    // The warps take turns, one for each pair of rows.
    const int pair = (slice - n_done * pairs) & (kSlices - 1);
    const int row = pair * 2 + lane % 2;
    if (pair < pairs && row < rows.n_rows) {
      float total[kStrips] = {};
#pragma unroll
      for (int s = 0; s < kSlices; ++s)
#pragma unroll
        for (int m = 0; m < kStrips; ++m)
          total[m] += buffer[((s * kStrips + m) * pairs + pair) * 32 + lane];
      leave(tile, in_tile, g + lane % 4 / 2 * 8, row, total);
    }
    if (++in_tile == job.tile_units && unit + 1 < units.y) {
      in_tile = 0;
      rows = enter(++tile);
    }
  }
}

}  // namespace hadal::cuda
