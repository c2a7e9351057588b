#pragma once

#include <cstdint>

#include "compute/backends/cuda/async_copy.cuh"

// Hopper's asynchronous matrix product and the barriers around it, as far as attention needs them.
namespace hadal::cuda {

// Shared memory operands in the 128-byte swizzle: rows of 64 bf16 (128 bytes), 16-byte chunk c of
// row r at place c ^ (r % 8), tiles aligned to 1024 bytes.
//
//   k major   rows are m or n, the 64 values of a row are k; 16 k further: 32 bytes
//   m major   rows are k, the 64 values of a row are n; `next_columns` bytes to the next 64 n;
//             16 k further: 16 rows, 2048 bytes
__device__ __forceinline__ uint64_t k_major_operand(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFFu) >> 4) | uint64_t{1} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
__device__ __forceinline__ uint64_t m_major_operand(uint32_t address, uint32_t next_columns) {
  return static_cast<uint64_t>((address & 0x3FFFFu) >> 4) |
         static_cast<uint64_t>(next_columns >> 4) << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
// Without swizzle, k major: 64 rows of 16 values as two halves, `half_bytes` apart, that hold eight
// of each row, row after row, in groups of eight rows `group_bytes` apart.
__device__ __forceinline__ uint64_t plain_operand(uint32_t address, uint32_t half_bytes,
                                                  uint32_t group_bytes) {
  return static_cast<uint64_t>((address & 0x3FFFFu) >> 4) |
         static_cast<uint64_t>(half_bytes >> 4) << 16 |
         static_cast<uint64_t>(group_bytes >> 4) << 32;
}
// Added to an operand: so many bytes further in shared memory.
__device__ __forceinline__ constexpr uint64_t further(uint32_t bytes) {
  return bytes >> 4;
}

__device__ __forceinline__ void mma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}
// After mma_wait: no use of the sums moves in front of it.
template <int kN>
__device__ __forceinline__ void settle(float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
// Ordinary writes to shared memory before it are seen by matrix products after it.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Whether a barrier in shared memory is through `phase`, which flips at each completion.
__device__ __forceinline__ bool barrier_passed(uint32_t barrier, uint32_t phase) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(phase)
      : "memory");
  return done != 0;
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t phase) {
  while (!barrier_passed(barrier, phase)) {
  }
}
// A barrier among `count` threads of a block, by number (0 is __syncthreads).
__device__ __forceinline__ void named_barrier(int number, int count) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(number), "r"(count) : "memory");
}
// Arrives at such a barrier without waiting.
__device__ __forceinline__ void named_arrive(int number, int count) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(number), "r"(count) : "memory");
}

// d (+)= a b of 64 x 64 x 16, a k major, b k major (0) or m major (1).
template <int kMajor>
__device__ __forceinline__ void mma_64(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, %35;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)), "n"(kMajor));
}

// d[64][64] (+)= a[64][16] b[64][16]^T, both k major; and with 80 keys. A thread's d: rows lane / 4
// and + 8 of its warp's 16, columns 8 j + 2 (lane % 4) and + 1, as d[4 j ...].
__device__ __forceinline__ void mma_scores(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  mma_64<0>(d, a, b, add);
}

__device__ __forceinline__ void mma_scores(float (&d)[40], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %42, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39"
      "}, %40, %41, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));
}

// d[64][64] (+)= a[64][16] b[16][64], a k major, b m major.
__device__ __forceinline__ void mma_n64(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  mma_64<1>(d, a, b, add);
}

// d[64][128] (+)= a[64][16] b[16][128], a k major, b m major.
__device__ __forceinline__ void mma_n128(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int32_t>(add)));
}

}  // namespace hadal::cuda
