#pragma once

#include <cstdint>
#include <type_traits>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/wgmma.cuh"
#include "compute/backends/cuda/wide_jobs.h"

// Products of the experts for steps of tens to thousands of rows: few rows an expert, so that the
// weights' bytes bind. A block goes through jobs: a row tile by 16 strips of outputs, a strip a
// warp. Four warps more bring weights and rows to a ring of stages in shared memory; the others
// turn their strip's weights to bf16 in registers and multiply: up to 16 rows by warp products,
// which need nothing of the other warps; more by wgmma, four warps together. An output's slices of
// k come one after the other and their sums are added in order.
namespace hadal::cuda {

template <int kStages, int kStageBytes>
struct ListRing;

inline constexpr int kListStrips = 16;                   // of a job, at most
inline constexpr int kListConsumers = kListStrips * 32;  // threads that multiply
inline constexpr int kCopiers = 4;                       // warps that copy: a warpgroup
inline constexpr int kListThreads = kListConsumers + kCopiers * 32;
inline constexpr int kCopyRegisters = 32, kProductRegisters = 112;  // of the 96 of a thread

// kBlocks: blocks of a stage. kLeast: bytes of a stage, at least.
template <ops::WeightFormat F, int kBlocks_, int kLeast = 0>
struct ListShape {
  static constexpr ops::WeightFormat kFormat = F;
  static constexpr int kBlocks = kBlocks_;
  static constexpr bool kFields = F == ops::WeightFormat::kFp8Tile;
  static constexpr int kBlockBytes = BlockBytes<F>::kBytes;
  static constexpr int kStripBytes = kBlocks * kBlockBytes + (kFields ? kMaxSliceFields : 0);
  static constexpr int kWeightBytes = (kListStrips * kStripBytes + 127) / 128 * 128;
  static constexpr int kTileBytes = kBlocks * 512;  // of 8 rows
  static constexpr int kUsedBytes = kWeightBytes + kTileRows / 8 * kTileBytes;
  static constexpr int kStageBytes = kUsedBytes > kLeast ? kUsedBytes : kLeast;
  static constexpr int kRingBytes = 224 << 10;
  static constexpr int kStages = kRingBytes / kStageBytes < 8 ? kRingBytes / kStageBytes : 8;
  static constexpr int kSharedBytes = kStages * kStageBytes + 2 * kStages * 8;
  using Ring = ListRing<kStages, kStageBytes>;
};

struct ListCall {
  PackedView w;
  const uint16_t* x;
  int64_t x_blocks;      // of a row of x
  const RowTile* tiles;  // or null:
  const int32_t* n_tiles;
  WideSpace space;
  int32_t strips;  // of a job
  uint16_t* y;
  int64_t y_stride;
  bool paired;  // two neighbouring outputs may be stored at once
};

__device__ __forceinline__ int64_t count_jobs(const ListCall& call) {
  if (call.tiles != nullptr)
    return static_cast<int64_t>(*call.n_tiles) * strip_jobs(call.w.n_strips, call.strips);
  return count_wide_jobs(call.space, call.strips);
}

__device__ __forceinline__ WideJob job_at(const ListCall& call, int64_t index) {
  if (call.tiles == nullptr) return wide_job_at(call.space, call.strips, index);
  const int across = strip_jobs(call.w.n_strips, call.strips);
  WideJob job;
  job.tile = call.tiles[index / across];
  job.first_strip = static_cast<int>(index % across) * call.strips;
  job.n_strips = min(call.strips, call.w.n_strips - job.first_strip);
  return job;
}

// Addresses in shared memory are 32-bit numbers that the compiler knows nothing of, or it would
// make them anew at every use.
__device__ __forceinline__ uint32_t opaque(uint32_t x) {
  uint32_t y;
  asm volatile("mov.u32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

template <int kStages, int kStageBytes>
struct ListRing {
  uint32_t stages, full, empty;
  int at = 0;
  uint32_t phase = 0;

  __device__ explicit ListRing(const uint8_t* shared)
      : stages(opaque(shared_address(shared))),
        full(stages + kStages * kStageBytes),
        empty(full + kStages * 8) {}
  __device__ __forceinline__ void next() {
    if (++at == kStages) {
      at = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ uint32_t stage() const { return stages + at * kStageBytes; }
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

// A lane's part of a block of a strip, as it lies in shared memory and as bf16.
template <ops::WeightFormat F>
struct ListBytes;
template <>
struct ListBytes<ops::WeightFormat::kFp4Row> {
  uint2 code;
  uint32_t power[2];
  __device__ __forceinline__ void load(uint32_t block, int lane) {
    code = shared_load2(block + lane * 8);
    power[0] = shared_load_byte(block + 256 + lane / 4 * 2);
    power[1] = shared_load_byte(block + 257 + lane / 4 * 2);
  }
  __device__ __forceinline__ void pairs(uint32_t, BlockPairs& out) const {
    decode_fp4(code.x, power_pair(power[0]), out.pair[0]);
    decode_fp4(code.y, power_pair(power[1]), out.pair[1]);
  }
};
template <>
struct ListBytes<ops::WeightFormat::kFp8Tile> : BlockBytes<ops::WeightFormat::kFp8Tile> {
  __device__ __forceinline__ void load(uint32_t block, int lane) {
    code = shared_load4(block + lane * 16);
  }
};

// The stages of a job, as a copying warp goes through them: it takes every kCopiers-th strip and
// row tile. One lane works: copies by lanes with addresses of their own become a loop of some 140
// clocks each, and with one such warp that was all that bound (2.1 TB/s on an H200).
template <class S>
struct ListCursor {
  const uint8_t* weight;         // of this warp's first strip
  const uint8_t* x;              // of its first 8 rows
  int64_t strip_bytes, x_bytes;  // to its next ones
  int n_strips, n_row_tiles;     // of this warp
  int slice, last_slice, block, end;

  __device__ ListCursor(const ListCall& call, const WideJob& job, int copier) {
    const PackedView& w = call.w;
    n_strips = max(job.n_strips - copier + kCopiers - 1, 0) / kCopiers;
    n_row_tiles = max((job.tile.n_rows + 7) / 8 - copier + kCopiers - 1, 0) / kCopiers;
    weight = w.weight + job.tile.group * w.group_bytes + (job.first_strip + copier) * w.strip_bytes;
    strip_bytes = kCopiers * w.strip_bytes;
    const int64_t x_block =
        call.tiles == nullptr ? static_cast<int64_t>(job.tile.group) * w.n_blocks : 0;
    x = reinterpret_cast<const uint8_t*>(call.x) +
        ((job.tile.first / 8 + copier) * call.x_blocks + x_block) * 512;
    x_bytes = kCopiers * call.x_blocks * 512;
    slice = job.first_slice - 1;
    last_slice = job.last_slice;
    block = end = 0;
    seek(w);
  }
  __device__ __forceinline__ bool done() const { return slice >= last_slice; }
  // To a slice with blocks.
  __device__ __forceinline__ void seek(const PackedView& w) {
    while (block >= end && ++slice < last_slice) {
      block = slice_begin(slice, w.n_blocks);
      end = slice_begin(slice + 1, w.n_blocks);
    }
  }
  __device__ __forceinline__ void next(const PackedView& w) {
    block += S::kBlocks;
    if (block >= end) {
      block = end;
      seek(w);
    }
  }
  __device__ __forceinline__ int n_blocks() const { return min(S::kBlocks, end - block); }
  __device__ __forceinline__ void copy_weights(const PackedView& w, uint32_t stage, uint32_t full,
                                               int copier) const {
    const int n = n_blocks();
    const int head_bytes = block == slice_begin(slice, w.n_blocks) ? w.head_bytes : 0;
    const uint32_t bytes = n * S::kBlockBytes + head_bytes;
    shared_barrier_expect(full, n_strips * bytes + n_row_tiles * (n * 512));
    const uint8_t* from = weight + static_cast<int64_t>(block) * S::kBlockBytes +
                          ((slice + 1) * w.head_bytes - head_bytes);
    const uint32_t to = stage + copier * S::kStripBytes;
#pragma unroll
    for (int i = 0; i < kListStrips / kCopiers; ++i) {
      if (i < n_strips)
        shared_bulk_copy(to + i * (kCopiers * S::kStripBytes), from + i * strip_bytes, bytes, full);
    }
  }
  __device__ __forceinline__ void copy_rows(uint32_t stage, uint32_t full, int copier) const {
    const uint32_t to = stage + S::kWeightBytes + copier * S::kTileBytes, bytes = n_blocks() * 512;
    const uint8_t* from = x + static_cast<int64_t>(block) * 512;
#pragma unroll
    for (int i = 0; i < kTileRows / 8 / kCopiers; ++i) {
      if (i >= n_row_tiles) break;
      shared_bulk_copy(to + i * (kCopiers * S::kTileBytes), from + i * x_bytes, bytes, full);
    }
  }
};

// A copying warp: weights of the first stages of a job, as many as the ring has. Weights are no
// kernel's result, so that this may happen before the kernels ahead have ended.
template <class S>
__device__ int produce_early(const ListCall& call, const WideJob& job, const typename S::Ring& ring,
                             int copier) {
  int n = 0;
  for (ListCursor<S> at(call, job, copier); !at.done() && n < S::kStages; at.next(call.w), ++n)
    at.copy_weights(call.w, ring.stages + n * S::kStageBytes, ring.full + n * 8, copier);
  return n;
}
// A job. `n_early`: stages, from here on, whose weights are on their way.
template <class S>
__device__ void produce(const ListCall& call, const WideJob& job, int& n_early,
                        typename S::Ring& ring, int copier) {
  for (ListCursor<S> at(call, job, copier); !at.done(); at.next(call.w)) {
    const uint32_t full = ring.full + ring.at * 8;
    if (n_early > 0) {
      --n_early;
    } else {
      ring.wait_empty();
      at.copy_weights(call.w, ring.stage(), full, copier);
    }
    at.copy_rows(ring.stage(), full, copier);
    ring.next();
  }
}

// Sums of a strip: sum[i] of lane (g, c) is row i / 4 * 8 + 2c + i % 2 of output g + i / 2 % 2 * 8.
template <int kSums>
__device__ __forceinline__ void store_strip(const ListCall& call, const WideJob& job, int strip,
                                            const float (&sum)[kSums]) {
  const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  const int32_t n = call.w.n, n_rows = job.tile.n_rows;
  const float scale = call.w.out_scale[job.tile.group];
  const int out = (job.first_strip + strip) * kStripRows + g;
  uint16_t* y = call.y + job.tile.first * call.y_stride +
                (call.tiles == nullptr ? static_cast<int64_t>(job.tile.group) * n : 0);
  if (call.paired) {
    // An even g takes row 2c of outputs g and g + 1 from its neighbour, an odd one row 2c + 1 of
    // g - 1 and g.
    const int odd = g % 2;
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      const float mine = (odd ? sum[i + 1] : sum[i]) * scale;
      const float other = __shfl_xor_sync(0xFFFFFFFFu, (odd ? sum[i] : sum[i + 1]) * scale, 4);
      const int row = i / 4 * 8 + c * 2 + odd, at = out - odd + i / 2 % 2 * 8;
      if (row >= n_rows || at >= n) continue;
      *reinterpret_cast<uint32_t*>(y + row * call.y_stride + at) =
          odd ? bf16_pair(other, mine) : bf16_pair(mine, other);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int row = i / 4 * 8 + c * 2 + i % 2, at = out + i / 2 % 2 * 8;
    if (row < n_rows && at < n) y[row * call.y_stride + at] = bf16_from_float(sum[i] * scale);
  }
}

// The exponent fields of a slice's blocks, kFp8Tile only: two a lane.
template <class S>
struct SliceFields {
  uint32_t of[2] = {};

  __device__ __forceinline__ void load(uint32_t head, int n_bytes, int lane) {
    of[0] = shared_load_byte(head + min(lane, n_bytes - 1));
    of[1] = shared_load_byte(head + min(lane + 32, n_bytes - 1));
  }
  __device__ __forceinline__ uint32_t at(int block) const {
    if constexpr (!S::kFields) return 0;
    return __shfl_sync(0xFFFFFFFFu, block < 32 ? of[0] : of[1], block % 32);
  }
};

// A warp's strip of a job of up to 8 * kTiles rows.
template <class S, int kTiles>
__device__ void consume_few(const ListCall& call, const WideJob& job, typename S::Ring& ring) {
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool busy = warp < job.n_strips;
  float total[kTiles * 4] = {};
  for (int slice = job.first_slice; slice < job.last_slice; ++slice) {
    const int n_blocks = slice_begin(slice + 1, w.n_blocks) - slice_begin(slice, w.n_blocks);
    float sum[kTiles][4] = {};
    SliceFields<S> fields;
    for (int block = 0; block < n_blocks; block += S::kBlocks) {
      ring.wait_full();
      uint32_t strip = ring.stage() + warp * S::kStripBytes;
      const uint32_t x = ring.stage() + S::kWeightBytes + lane * 16;
      if (S::kFields && block == 0) {
        fields.load(strip, w.head_bytes, lane);
        strip += w.head_bytes;
      }
      const auto multiply = [&](const ListBytes<S::kFormat>& bytes, const uint32_t(&b)[kTiles][4],
                                int at) {
        BlockPairs pairs;
        bytes.pairs(fields.at(at), pairs);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          uint32_t a[4];
          pairs.operand(s, a);
#pragma unroll
          for (int t = 0; t < kTiles; ++t) mma_bf16(sum[t], a, b[t][2 * s], b[t][2 * s + 1]);
        }
      };
      if (!busy) {
        ring.release(ring.at, lane);
      } else if (block + S::kBlocks <= n_blocks) {
        ListBytes<S::kFormat> bytes[S::kBlocks];
        uint32_t b[S::kBlocks][kTiles][4];
#pragma unroll
        for (int i = 0; i < S::kBlocks; ++i) {
          bytes[i].load(strip + i * S::kBlockBytes, lane);
#pragma unroll
          for (int t = 0; t < kTiles; ++t) load_cores(b[i][t], x + t * S::kTileBytes + i * 512);
        }
        ring.release(ring.at, lane);
#pragma unroll
        for (int i = 0; i < S::kBlocks; ++i) multiply(bytes[i], b[i], block + i);
      } else {
#pragma unroll 1
        for (int i = 0; block + i < n_blocks; ++i) {
          ListBytes<S::kFormat> bytes;
          uint32_t b[kTiles][4];
          bytes.load(strip + i * S::kBlockBytes, lane);
#pragma unroll
          for (int t = 0; t < kTiles; ++t) load_cores(b[t], x + t * S::kTileBytes + i * 512);
          multiply(bytes, b, block + i);
        }
        ring.release(ring.at, lane);
      }
      ring.next();
    }
    if (n_blocks == 0) continue;
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) total[i] += sum[i / 4][i % 4];
  }
  if (busy) store_strip(call, job, warp, total);
}

// A warpgroup's strips of a job of up to kRows rows. Warps without a strip multiply what lies
// there.
template <class S, int kRows>
__device__ void consume_many(const ListCall& call, const WideJob& job, typename S::Ring& ring) {
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float total[kRows / 2] = {}, sum[kRows / 2];
  for (int slice = job.first_slice; slice < job.last_slice; ++slice) {
    const int n_blocks = slice_begin(slice + 1, w.n_blocks) - slice_begin(slice, w.n_blocks);
    if (n_blocks == 0) continue;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) sum[i] = 0;
    SliceFields<S> fields;
    int done_stage = -1;  // read, but not free until the products of its last block are complete
    for (int block = 0; block < n_blocks; block += S::kBlocks) {
      ring.wait_full();
      uint32_t strip = ring.stage() + warp * S::kStripBytes;
      const uint64_t x = wgmma_operand(ring.stage() + S::kWeightBytes, S::kTileBytes);
      if (S::kFields && block == 0) {
        fields.load(strip, w.head_bytes, lane);
        strip += w.head_bytes;
      }
      const auto decode = [&](const ListBytes<S::kFormat>& bytes, int at, uint32_t(&a)[2][4]) {
        BlockPairs pairs;
        bytes.pairs(fields.at(at), pairs);
        pairs.operand(0, a[0]);
        pairs.operand(1, a[1]);
      };
      const auto multiply = [&](int i, const uint32_t(&a)[2][4]) {
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2; ++s) wgmma<kRows>(sum, a[s], wgmma_part(x, i * 512 + s * 256), 1);
        wgmma_commit();
      };
      if (block + S::kBlocks <= n_blocks) {
        ListBytes<S::kFormat> bytes[2];
        uint32_t a[2][2][4];
        bytes[0].load(strip, lane);
#pragma unroll
        for (int i = 0; i < S::kBlocks; ++i) {
          decode(bytes[i % 2], block + i, a[i % 2]);
          // These registers are never the operand of a running product, as bf16 weights would be.
          static_assert(S::kFormat != ops::WeightFormat::kBf16);
          if (i + 1 < S::kBlocks) bytes[(i + 1) % 2].load(strip + (i + 1) * S::kBlockBytes, lane);
          multiply(i, a[i % 2]);
          wgmma_wait<1>();
          if (i == 0 && done_stage >= 0) ring.release(done_stage, lane);
        }
      } else {
        wgmma_wait<0>();
        if (done_stage >= 0) ring.release(done_stage, lane);
#pragma unroll 1
        for (int i = 0; block + i < n_blocks; ++i) {
          ListBytes<S::kFormat> bytes;
          uint32_t a[2][4];
          bytes.load(strip + i * S::kBlockBytes, lane);
          decode(bytes, block + i, a);
          multiply(i, a);
          wgmma_wait<0>();
        }
      }
      done_stage = ring.at;
      ring.next();
    }
    wgmma_wait<0>();
    ring.release(done_stage, lane);
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) total[i] += sum[i];
  }
  if (warp < job.n_strips) store_strip(call, job, warp, total);
}

template <class S>
__device__ void consume(const ListCall& call, const WideJob& job, typename S::Ring& ring) {
  const int n_rows = job.tile.n_rows;
  if (n_rows <= 8) {
    consume_few<S, 1>(call, job, ring);
  } else if (n_rows <= 16) {
    consume_few<S, 2>(call, job, ring);
  } else if (n_rows <= 32) {
    consume_many<S, 32>(call, job, ring);
  } else {
    consume_many<S, 64>(call, job, ring);
  }
}

// Two products, the jobs of `one` (without a list) before those of `two` (with one).
template <class S, class T>
__global__ void __launch_bounds__(kListThreads, 1)
    lists_kernel(const __grid_constant__ ListCall one, const __grid_constant__ ListCall two) {
  using Ring = typename S::Ring;
  static_assert(std::is_same_v<Ring, typename T::Ring>);
  extern __shared__ __align__(128) uint8_t shared[];
  Ring ring(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      shared_barrier_init(ring.full + i * 8, kCopiers);
      shared_barrier_init(ring.empty + i * 8, kListStrips);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int64_t n_one = count_jobs(one);
  if (threadIdx.x >= kListConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    const int copier = static_cast<int>(threadIdx.x - kListConsumers) / 32;
    if (!elect_lane()) {
      wait_for_previous();
      return;
    }
    int n_early =
        blockIdx.x < n_one ? produce_early<S>(one, job_at(one, blockIdx.x), ring, copier) : 0;
    wait_for_previous();
    let_next_start();
    const int64_t n = n_one + count_jobs(two);
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
      if (i < n_one) {
        produce<S>(one, job_at(one, i), n_early, ring, copier);
      } else {
        produce<T>(two, job_at(two, i - n_one), n_early, ring, copier);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    wait_for_previous();
    let_next_start();
    const int64_t n = n_one + count_jobs(two);
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
      if (i < n_one) {
        consume<S>(one, job_at(one, i), ring);
      } else {
        consume<T>(two, job_at(two, i - n_one), ring);
      }
    }
  }
}

}  // namespace hadal::cuda
