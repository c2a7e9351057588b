#pragma once

#include <cstdint>

// Writes into the shared memory of other blocks of a cluster that complete on a barrier there.
namespace hadal::cuda {

// What an address of this block's shared memory is in block `rank` of the cluster.
__device__ __forceinline__ uint32_t remote(uint32_t address, int rank) {
  uint32_t out;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(out) : "r"(address), "r"(rank));
  return out;
}
__device__ __forceinline__ void send16(uint32_t to, float4 v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];\n" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send4(uint32_t to, float v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];\n" ::"r"(to),
      "f"(v), "r"(barrier)
      : "memory");
}
// The barrier of all threads of the cluster, in two parts. What was written before it is not made
// visible by arriving (barrier_init_done() did that for barriers): a release would wait for all
// loads under way.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

}  // namespace hadal::cuda
