#pragma once

#include <cstdint>

#include "compute/backends/cuda/wgmma.cuh"

// Warpgroup products m64nNk32 of E4M3 with f32 sums, A in registers (a lane's four words are
// columns 4c .. 4c+3 of rows g and g + 8, then columns 16+4c ..), B as in wgmma.cuh. The tensor
// cores add FP8 products with some 14 bits of mantissa.
namespace hadal::cuda {

// d = a b, plus d if `kAdd`.
template <int kRows, bool kAdd>
__device__ __forceinline__ void wgmma_fp8(float (&d)[kRows / 2], const uint32_t (&a)[4],
                                          uint64_t b) {
  static_assert(kRows == 32 || kRows == 64);
#define HADAL_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
  if constexpr (kRows == 64) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, "
        "%36, p, 1, 1;}"
        : HADAL_D4(0), HADAL_D4(4), HADAL_D4(8), HADAL_D4(12), HADAL_D4(16), HADAL_D4(20),
          HADAL_D4(24), HADAL_D4(28)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd ? 1 : 0));
  } else {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1;}"
        : HADAL_D4(0), HADAL_D4(4), HADAL_D4(8), HADAL_D4(12)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd ? 1 : 0));
  }
#undef HADAL_D4
}

}  // namespace hadal::cuda
