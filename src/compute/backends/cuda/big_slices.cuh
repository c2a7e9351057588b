#pragma once

#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/big_boxes.cuh"
#include "compute/backends/cuda/big_wgmma.cuh"
#include "compute/backends/cuda/fragments.cuh"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/ring.cuh"

// What a warpgroup of big.cu and of big_list.cu multiplies for a job.
namespace hadal::cuda {

inline constexpr int kMaxFields = 32;  // exponent fields of a slice of FP8: one a lane

// Adds to `total` the slices of k one after the other, from the stages of the ring, which are those
// of all blocks of a cluster of `cluster`. S: rows kRowsAt in a stage; of FP8 weights the exponent
// fields kFieldsAt, kMaxFields of a warp.
template <ops::WeightFormat F, int kRows, class S>
__device__ __forceinline__ void add_slices(const PackedView& w, int cluster, Ring<S>& ring,
                                           float (&total)[kRows / 2]) {
  constexpr bool kFields = F == ops::WeightFormat::kFp8Tile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum[kRows / 2];
  const auto release = [&](int stage) {
    if (lane < cluster) barrier_arrive_at(shared_address(ring.empty + stage), lane);
  };
  for (int slice = 0; slice < kSlices; ++slice) {
    const int n_blocks = slice_begin(slice + 1, w.n_blocks) - slice_begin(slice, w.n_blocks);
    if (n_blocks == 0) continue;
    uint32_t fields = 0;
    // Block i of a stage of n, which is block `block` of the slice.
    const auto multiply = [&](int i, int n, int block, uint32_t(&a)[2][4]) {
      const uint8_t* stage = ring.stage();
      BlockBytes<F> bytes;
      bytes.load(stage + (warp * n + i) * BlockBytes<F>::kBytes, lane);
      const uint32_t field = kFields ? __shfl_sync(0xFFFFFFFFu, fields, block) : 0;
      BlockPairs pairs;
      bytes.pairs(field, pairs);
      pairs.operand(0, a[0]);
      pairs.operand(1, a[1]);
      const uint32_t rows = shared_address(stage + S::kRowsAt) + i * 512;
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < 2; ++s)
        wgmma_rows(sum, a[s], wgmma_operand(rows + s * 256, n * 512), s > 0 ? 1 : block);
      wgmma_commit();
    };
    const auto wait_stage = [&](int block) {
      barrier_wait(ring.full + ring.at, ring.phase);
      if constexpr (kFields)
        if (block == 0) fields = ring.stage()[S::kFieldsAt + warp * kMaxFields + lane];
    };
    int done_stage = -1;  // read, but not free until the products of its last block are complete
    int block = 0;
    if (n_blocks % 2 != 0) {
      uint32_t a[2][4];
      wait_stage(0);
      multiply(0, 1, 0, a);
      done_stage = ring.at;
      ring.next();
      block = 1;
    }
    for (; block < n_blocks; block += 2) {
      uint32_t a[2][2][4];
      wait_stage(block);
      multiply(0, 2, block, a[0]);
      wgmma_wait<1>();
      if (done_stage >= 0) release(done_stage);
      multiply(1, 2, block + 1, a[1]);
      wgmma_wait<1>();
      done_stage = ring.at;
      ring.next();
    }
    wgmma_wait<0>();
    release(done_stage);
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) total[i] += sum[i];
  }
}

}  // namespace hadal::cuda
