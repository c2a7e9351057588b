#pragma once

#include <cstdint>

// Bulk copies from global to shared memory that complete on a barrier in shared memory, and the
// order between a kernel and the one before it in its stream.
namespace hadal::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// Addresses in shared memory are 32-bit numbers that the compiler knows nothing of, or it would
// make them anew at every use.
__device__ __forceinline__ uint32_t opaque(uint32_t x) {
  uint32_t y;
  asm volatile("mov.u32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
// Makes initialised barriers visible to the copy engine; then the block has to synchronise.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Barriers and copies by their addresses in shared memory (shared_address()), and loads from there.
// `bytes` and both addresses of a copy are multiples of 16.
__device__ __forceinline__ void shared_barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void shared_barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void shared_barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void shared_barrier_wait(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
__device__ __forceinline__ void shared_bulk_copy(uint32_t to, const void* from, uint32_t bytes,
                                                 uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// For bytes that are read once: they leave L2 before others do, which is all a hint may do.
__device__ __forceinline__ uint64_t read_once() {
  uint64_t hint;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(hint));
  return hint;
}
__device__ __forceinline__ void shared_bulk_copy(uint32_t to, const void* from, uint32_t bytes,
                                                 uint32_t barrier, uint64_t hint) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(hint)
      : "memory");
}
// The same by pointers.
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  shared_barrier_init(shared_address(barrier), arrivals);
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  shared_barrier_arrive(shared_address(barrier));
}
__device__ __forceinline__ void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  shared_barrier_expect(shared_address(barrier), bytes);
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t phase) {
  shared_barrier_wait(shared_address(barrier), phase);
}
__device__ __forceinline__ void bulk_copy(void* to, const void* from, uint32_t bytes,
                                          uint64_t* barrier) {
  shared_bulk_copy(shared_address(to), from, bytes, shared_address(barrier));
}

__device__ __forceinline__ uint32_t shared_load_byte(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}
__device__ __forceinline__ uint2 shared_load2(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}
__device__ __forceinline__ uint4 shared_load4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

// True in one lane of a warp, all of which call it.
__device__ __forceinline__ bool elect_lane() {
  uint32_t chosen;
  asm volatile(
      "{.reg .pred p;\n"
      "elect.sync _|p, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(chosen));
  return chosen != 0;
}

// Kernels that overlap. A kernel launched so may start while the one before it in its stream still
// runs. These rules make that safe, whatever stands before and behind it:
//
//   (1) every block calls wait_for_previous(), and none ends before that;
//   (2) before it, a kernel reads only what no kernel of a step writes (weights, its parameters),
//       and writes no memory that others see;
//   (3) who does more before it says why that is safe (thin_experts_kernel);
//   (4) what the kernel just before wrote is not read by the read-only path (__ldg), which asks for
//       memory that nobody writes while the kernel lives. Older results are complete when it
//       starts, if the one before called let_next_start() behind its wait.
//
// Then behind wait_for_previous() in kernel n all kernels before it are complete, and what they
// wrote is visible. By induction: the wait ends when kernel n - 1 has ended. That one ended behind
// its own wait (1), or had been launched without overlap and started when kernel n - 2 had ended;
// so kernels up to n - 2 are complete too. Hence no kernel overwrites what an earlier one still
// reads, and scratch may be used again by the very next kernel.
//
// let_next_start() only says how early the next kernel's blocks may take their places and fetch
// their weights. Behind wait_for_previous() it leaves at most two kernels of a stream on the GPU.

// Everything that earlier kernels of the stream wrote is visible after this.
__device__ __forceinline__ void wait_for_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next kernel may start, once all blocks have said so or ended.
__device__ __forceinline__ void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// The first thing in a kernel that launch_following() launches.
__device__ __forceinline__ void follow_previous(bool overlap) {
  if (!overlap) return;
  wait_for_previous();
  let_next_start();
}

// Before follow_previous(): small weights (a norm, a bias) on their way to L2, a line a thread.
// Weights pass through L2 too seldom to be found there.
__device__ __forceinline__ void expect_weights(bool overlap, const void* weights, int bytes) {
  const int at = static_cast<int>(threadIdx.x) * 128;
  if (overlap && weights != nullptr && at < bytes)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(weights) + at));
}

// A launch that may begin while the kernel before it ends, if `overlap`. `cluster`: blocks of a
// cluster, 1 for none and for a kernel that has its own __cluster_dims__.
template <class... Parameters, class... Arguments>
void launch_following(bool overlap, unsigned cluster, void (*kernel)(Parameters...), dim3 grid,
                      dim3 block, size_t shared_bytes, cudaStream_t stream,
                      Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (overlap) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {cluster, 1, 1};
  }
  cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

// The same for kernels that always overlap: they call wait_for_previous() in every block.
template <class... Parameters, class... Arguments>
void launch_overlapped(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                       cudaStream_t stream, Arguments&&... arguments) {
  launch_following(true, 1, kernel, grid, block, shared_bytes, stream,
                   static_cast<Arguments&&>(arguments)...);
}

}  // namespace hadal::cuda
