#pragma once

#include "compute/backends/cuda/async_copy.cuh"

// Copies of 16 bytes to shared memory that the thread itself waits for, and a word that others
// change there, by their addresses: a pointer is worked out again at each use.
namespace hadal::cuda {

__device__ __forceinline__ uint32_t changing_word(uint32_t address) {
  uint32_t v;
  asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}
__device__ __forceinline__ void copy16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Ends a group of copies.
__device__ __forceinline__ void copy16_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kLeft groups are under way.
template <int kLeft>
__device__ __forceinline__ void copy16_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace hadal::cuda
