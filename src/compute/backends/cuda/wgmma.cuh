#pragma once

#include <cstdint>

// Warpgroup products m64nNk16 of bf16 with f32 sums, A in registers (the lanes' parts of four
// m16k16 operands, as for mma.sync), B in shared memory as core matrices of 8 rows by 16 bytes,
// each 128 bytes without gaps; k is the fast dimension.
namespace hadal::cuda {

// B of N / 8 row tiles `tile_bytes` apart, whose two core matrices of this product lie side by
// side.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t shared_address, uint32_t tile_bytes) {
  return static_cast<uint64_t>((shared_address & 0x3FFFFu) >> 4) | (uint64_t{128 >> 4} << 16) |
         (static_cast<uint64_t>(tile_bytes >> 4) << 32);
}
// B `bytes` further on, inside the same tiles.
__device__ __forceinline__ uint64_t wgmma_part(uint64_t operand, uint32_t bytes) {
  const uint32_t low = static_cast<uint32_t>(operand) + (bytes >> 4);  // no carry: 14 bits
  return (operand & 0xFFFFFFFF00000000u) | low;
}
// Four core matrices that lie side by side, as the B operands of two m16n8k16 products; `address`
// is that of the first plus 16 bytes a lane.
__device__ __forceinline__ void load_cores(uint32_t (&b)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// d = a b, plus d if `add`.
template <int kRows>
__device__ __forceinline__ void wgmma(float (&d)[kRows / 2], const uint32_t (&a)[4], uint64_t b,
                                      int add);

#define HADAL_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
template <>
__device__ __forceinline__ void wgmma<8>(float (&d)[4], const uint32_t (&a)[4], uint64_t b,
                                         int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, "
      "1, 0;}"
      : HADAL_D4(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <>
__device__ __forceinline__ void wgmma<32>(float (&d)[16], const uint32_t (&a)[4], uint64_t b,
                                          int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, "
      "0;}"
      : HADAL_D4(0), HADAL_D4(4), HADAL_D4(8), HADAL_D4(12)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
template <>
__device__ __forceinline__ void wgmma<64>(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                          int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, "
      "p, "
      "1, 1, 0;}"
      : HADAL_D4(0), HADAL_D4(4), HADAL_D4(8), HADAL_D4(12), HADAL_D4(16), HADAL_D4(20),
        HADAL_D4(24), HADAL_D4(28)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#undef HADAL_D4

}  // namespace hadal::cuda
