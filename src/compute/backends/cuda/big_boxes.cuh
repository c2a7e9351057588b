#pragma once

#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/tile_map.h"

// Clusters and their boxes of device memory: what the kernels for many rows (big.cu, big_list.cu)
// share.
namespace hadal::cuda {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// A barrier's address in block `rank` of the cluster, and an arrival there.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// The box at `at` (kMapUnit bytes) of row `row`, to the same place in every block of `mask` if
// there are several, completing on the barrier of each. Addresses in shared memory.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, int at, int row,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(at), "r"(row), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_box_to_all(uint32_t to, const CUtensorMap& map, int at,
                                                int row, uint32_t barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(at), "r"(row), "r"(barrier), "h"(mask)
      : "memory");
}
// The same by pointers, `at` in bytes.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, int at, int row,
                                         uint64_t* barrier) {
  copy_box(shared_address(to), map, at / kMapUnit, row, shared_address(barrier));
}
__device__ __forceinline__ void copy_box_to_all(void* to, const CUtensorMap& map, int at, int row,
                                                uint64_t* barrier, uint16_t mask) {
  copy_box_to_all(shared_address(to), map, at / kMapUnit, row, shared_address(barrier), mask);
}

// Blocks of the stage at block `block` of a slice of `n`: 2, but 1 at the beginning of a slice of
// an odd number, where no products are in flight that a shorter stage could hold up.
__device__ __forceinline__ int stage_blocks(int block, int n) {
  return block == 0 && n % 2 != 0 ? 1 : 2;
}

}  // namespace hadal::cuda
