#pragma once

#include <cstdint>

#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/list_copy.cuh"
#include "compute/backends/cuda/wgmma.cuh"

// Products of the experts for steps of tens to thousands of rows: few rows an expert, so that the
// weights' bytes bind. A block goes through jobs: a row tile by up to 16 strips of outputs, a strip
// a warp. Four warps more bring weights and rows to a ring of stages in shared memory; the others
// turn their strip's weights to bf16 in registers and multiply: up to 16 rows by warp products,
// which need nothing of the other warps; more by wgmma, four warps together. An output's slices of
// k come one after the other and their sums are added in order.
namespace hadal::cuda {

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

// A warp's sums of a strip by 8 * kTiles rows: of a slice, and of the slices before it.
template <int kTiles>
struct StripSums {
  float total[kTiles * 4] = {}, sum[kTiles][4] = {};

  __device__ __forceinline__ void end_slice() {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      total[i] += sum[i / 4][i % 4];
      sum[i / 4][i % 4] = 0;
    }
  }
};

// Blocks of a stage in registers. `strip`, `x`: the first one's addresses.
template <class S, int kTiles, int kCount>
struct StripBlocks {
  ListBytes<S::kFormat> bytes[kCount];
  uint32_t b[kCount][kTiles][4];

  __device__ __forceinline__ void load(uint32_t strip, uint32_t x, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      bytes[i].load(strip + i * S::kBlockBytes, lane);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) load_cores(b[i][t], x + t * S::kTileBytes + i * 512);
    }
  }
  // A slice ends before block kEnd, if that is neither 0 nor kCount. `place`: the first block's.
  template <int kEnd>
  __device__ __forceinline__ void multiply(const SliceFields<S>& fields, int place,
                                           StripSums<kTiles>& sums) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i > 0 && i == kEnd) sums.end_slice();
      BlockPairs pairs;
      bytes[i].pairs(fields.at(place + i), pairs);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        uint32_t a[4];
        pairs.operand(s, a);
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          mma_bf16(sums.sum[t], a, b[i][t][2 * s], b[i][t][2 * s + 1]);
      }
    }
  }
  // The same of four, the first of which is block `at.block`: one slice ends there, at most.
  __device__ __forceinline__ void multiply_four(ListBlocks<S>& at, const SliceFields<S>& fields,
                                                int place, StripSums<kTiles>& sums) const {
    static_assert(kCount == 4);
    const int left = at.end - at.block;  // of the slice
    if (S::kFields || left >= 4) return multiply<0>(fields, place, sums);
    at.turn(at.end);
    if (left == 0) {
      sums.end_slice();
      return multiply<0>(fields, place, sums);
    }
    if (left == 1) return multiply<1>(fields, place, sums);
    if (left == 2) return multiply<2>(fields, place, sums);
    multiply<3>(fields, place, sums);
  }
};

// A warp's strip of a job of up to 8 * kTiles rows. A test at each block, whether a slice ends
// there, would cost a tenth of the instructions: it is made for four blocks.
template <class S, int kTiles>
__device__ void consume_few(const ListCall& call, const WideJob& job, ListRing& ring, int warp) {
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32;
  const bool busy = warp < job.n_strips;
  const bool long_slices = S::kFields || w.n_blocks >= 4 * kSlices;
  StripSums<kTiles> sums;
  SliceFields<S> fields;
  ListBlocks<S> at(w.n_blocks);
  while (!at.done()) {
    if (at.turn(at.block)) sums.end_slice();
    int n = at.stage_blocks();
    ring.wait_full();
    const int stage = ring.at;
    if (!busy) {
      ring.release(stage, lane);
      at.block += n;
      ring.next();
      continue;
    }
    uint32_t strip = ring.stage() + warp * S::kStripBytes;
    uint32_t x = ring.stage() + S::kWeightBytes + lane * 16;
    int place = at.block;
    if constexpr (S::kFields) {
      place -= slice_begin(at.slice, w.n_blocks);
      if (place == 0) {
        fields.load(strip, w.head_bytes, lane);
        strip += w.head_bytes;
      }
    }
    while (long_slices && n >= 4) {
      StripBlocks<S, kTiles, 4> blocks;
      blocks.load(strip, x, lane);
      n -= 4;
      if (n == 0) ring.release(stage, lane);
      blocks.multiply_four(at, fields, place, sums);
      strip += 4 * S::kBlockBytes;
      x += 4 * 512;
      place += 4;
      at.block += 4;
    }
    if (n > 0) {
#pragma unroll 1
      for (; n > 0; --n) {
        if (!S::kFields && at.turn(at.block)) sums.end_slice();
        StripBlocks<S, kTiles, 1> blocks;
        blocks.load(strip, x, lane);
        blocks.template multiply<0>(fields, place, sums);
        strip += S::kBlockBytes;
        x += 512;
        ++place;
        ++at.block;
      }
      ring.release(stage, lane);
    }
    ring.next();
  }
  sums.end_slice();
  if (busy) store_strip(call, job, warp, sums.total);
}

// A warpgroup's strips of a job of up to kRows rows. Its warps without a strip multiply what lies
// there; a warpgroup without one only lets the stages pass. A block's product ends before the next
// one's weights are decoded: meanwhile the other warpgroups multiply.
template <class S, int kRows>
__device__ void consume_many(const ListCall& call, const WideJob& job, ListRing& ring, int warp) {
  const PackedView& w = call.w;
  const int lane = threadIdx.x % 32;
  const bool busy = warp / 4 * 4 < job.n_strips;
  float total[kRows / 2] = {}, sum[kRows / 2] = {};
  SliceFields<S> fields;
  ListBlocks<S> at(w.n_blocks);
  const auto add_slice = [&] {
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      total[i] += sum[i];
      sum[i] = 0;
    }
  };
  while (!at.done()) {
    if (at.turn(at.block)) add_slice();
    const int n = at.stage_blocks();
    ring.wait_full();
    if (busy) {
      uint32_t strip = ring.stage() + warp * S::kStripBytes;
      const uint64_t x = wgmma_operand(ring.stage() + S::kWeightBytes, S::kTileBytes);
      int field_at = at.block;
      if constexpr (S::kFields) {
        field_at -= slice_begin(at.slice, w.n_blocks);
        if (field_at == 0) {
          fields.load(strip, w.head_bytes, lane);
          strip += w.head_bytes;
        }
      }
      ListBytes<S::kFormat> bytes;
      bytes.load(strip, lane);
#pragma unroll 1
      for (int i = 0; i < n; ++i) {
        if (!S::kFields && at.turn(at.block + i)) add_slice();
        uint32_t a[2][4];
        BlockPairs pairs;
        bytes.pairs(fields.at(field_at + i), pairs);
        pairs.operand(0, a[0]);
        pairs.operand(1, a[1]);
        if (i + 1 < n) bytes.load(strip + (i + 1) * S::kBlockBytes, lane);
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2; ++s) wgmma<kRows>(sum, a[s], wgmma_part(x, i * 512 + s * 256), 1);
        wgmma_commit();
        wgmma_wait<0>();
      }
    }
    ring.release(ring.at, lane);
    at.block += n;
    ring.next();
  }
  add_slice();
  if (warp < job.n_strips) store_strip(call, job, warp, total);
}

template <class S>
__device__ void consume(const ListCall& call, const WideJob& job, ListRing& ring, int warp) {
  const int n_rows = job.tile.n_rows;
  if (n_rows <= 8) {
    consume_few<S, 1>(call, job, ring, warp);
  } else if (n_rows <= 16) {
    consume_few<S, 2>(call, job, ring, warp);
  } else if (n_rows <= 32) {
    consume_many<S, 32>(call, job, ring, warp);
  } else {
    consume_many<S, 64>(call, job, ring, warp);
  }
}

// The jobs of a block, in order: of the shared expert's product, then of the routed ones'.
template <class One, class Two>
__device__ __forceinline__ void for_jobs(const ListCall& one, const ListCall& two, One do_one,
                                         Two do_two) {
  const int64_t block = blockIdx.x, n_blocks = gridDim.x;
  const int64_t n_one = count_wide_jobs(one.space, kListStrips);
  const int64_t n_two = static_cast<int64_t>(*two.n_tiles) * two.w.n_strips;
  const int64_t last = n_one * (block + 1) / n_blocks;
  for (int64_t i = n_one * block / n_blocks; i < last; ++i)
    do_one(wide_job_at(one.space, kListStrips, i));
  const auto begin = [&](int64_t of) {
    return list_job_begin(two.w.n_strips, list_begin(n_one, kSharedJobWeight, n_two, of, n_blocks));
  };
  ListWalk walk(two.w.n_strips, begin(block), begin(block + 1));
  WideJob job;
  for (; !walk.done(); walk.next()) {
    if (walk.enter()) job.tile = two.tiles[walk.tile];
    job.first_strip = walk.first_strip();
    job.n_strips = walk.n_strips();
    do_two(job);
  }
}

// Two products: of the shared expert (without a list), and of the routed ones (with one).
template <class S, class T>
__global__ void __launch_bounds__(kListThreads, 1)
    lists_kernel(const __grid_constant__ ListCall one, const __grid_constant__ ListCall two) {
  extern __shared__ __align__(128) uint8_t shared[];
  ListRing ring(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kListStages; ++i) {
      shared_barrier_init(ring.full + i * 8, kCopiers);
      shared_barrier_init(ring.empty + i * 8, kListStrips);
    }
    barrier_init_done();
  }
  __syncthreads();
  // By a shuffle, so that the compiler knows that warps do not part and needs no meeting points.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp >= kListStrips) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCopyRegisters));
    const int copier = warp - kListStrips;
    if (!elect_lane()) {
      wait_for_previous();
      return;
    }
    // Tiles are read before the wait: the kernel that made them was complete before the one just
    // before this one let it start.
    bool waited = false;
    for_jobs(
        one, two, [&](const WideJob& job) { produce<S>(one, job, ring, copier, waited); },
        [&](const WideJob& job) { produce<T>(two, job, ring, copier, waited); });
    if (!waited) wait_for_previous();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
    wait_for_previous();
    let_next_start();
    for_jobs(
        one, two, [&](const WideJob& job) { consume<S>(one, job, ring, warp); },
        [&](const WideJob& job) { consume<T>(two, job, ring, warp); });
  }
}

}  // namespace hadal::cuda
