#pragma once

#include <cstdint>

#include "compute/backends/cuda/wgmma.cuh"

// Larger shapes of wgmma.cuh: d = a b, plus d if `add`, for 64 to 192 rows of bf16 and 64 to 160
// of E4M3, whose products the tensor cores add with some 14 bits of mantissa. A of E4M3: a lane's
// four words are columns 4c .. 4c+3 of rows g and g + 8, then columns 16+4c and on.
namespace hadal::cuda {

#define HADAL_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HADAL_D16(i) HADAL_D4(i), HADAL_D4(i + 4), HADAL_D4(i + 8), HADAL_D4(i + 12)
// Operands of an instruction with so many sums a thread: the sums, A and B, whether d is added.
#define HADAL_DS_32 HADAL_D16(0), HADAL_D16(16)
#define HADAL_OPERANDS_32                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"            \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, " \
  "{%32,%33,%34,%35}, %36"
#define HADAL_ADD_32 "%37"
#define HADAL_DS_48 HADAL_D16(0), HADAL_D16(16), HADAL_D16(32)
#define HADAL_OPERANDS_48                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"            \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"   \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, " \
  "{%48,%49,%50,%51}, %52"
#define HADAL_ADD_48 "%53"
#define HADAL_DS_64 HADAL_D16(0), HADAL_D16(16), HADAL_D16(32), HADAL_D16(48)
#define HADAL_OPERANDS_64                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"            \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"   \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"   \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, " \
  "{%64,%65,%66,%67}, %68"
#define HADAL_ADD_64 "%69"
#define HADAL_DS_80 HADAL_D16(0), HADAL_D16(16), HADAL_D16(32), HADAL_D16(48), HADAL_D16(64)
#define HADAL_OPERANDS_80                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"            \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"   \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"   \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"   \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79}, " \
  "{%80,%81,%82,%83}, %84"
#define HADAL_ADD_80 "%85"
#define HADAL_DS_96 \
  HADAL_D16(0), HADAL_D16(16), HADAL_D16(32), HADAL_D16(48), HADAL_D16(64), HADAL_D16(80)
#define HADAL_OPERANDS_96                                              \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"            \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"   \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"   \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"   \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"   \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, " \
  "{%96,%97,%98,%99}, %100"
#define HADAL_ADD_96 "%101"
#define HADAL_PRODUCT(name, n, instruction, tail)                                                  \
  __device__ __forceinline__ void name(float(&d)[n], const uint32_t(&a)[4], uint64_t b, int add) { \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " HADAL_ADD_##n                                    \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned." instruction " " HADAL_OPERANDS_##n ", p, " tail   \
                                                                                    ";}"           \
                 : HADAL_DS_##n                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                  \
  }
__device__ __forceinline__ void wgmma_rows(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                           int add) {
  wgmma<64>(d, a, b, add);
}
HADAL_PRODUCT(wgmma_rows, 48, "m64n96k16.f32.bf16.bf16", "1, 1, 0")
HADAL_PRODUCT(wgmma_rows, 64, "m64n128k16.f32.bf16.bf16", "1, 1, 0")
HADAL_PRODUCT(wgmma_rows, 80, "m64n160k16.f32.bf16.bf16", "1, 1, 0")
HADAL_PRODUCT(wgmma_rows, 96, "m64n192k16.f32.bf16.bf16", "1, 1, 0")
HADAL_PRODUCT(wgmma_fp8_rows, 32, "m64n64k32.f32.e4m3.e4m3", "1, 1")
HADAL_PRODUCT(wgmma_fp8_rows, 48, "m64n96k32.f32.e4m3.e4m3", "1, 1")
HADAL_PRODUCT(wgmma_fp8_rows, 64, "m64n128k32.f32.e4m3.e4m3", "1, 1")
HADAL_PRODUCT(wgmma_fp8_rows, 80, "m64n160k32.f32.e4m3.e4m3", "1, 1")
#undef HADAL_PRODUCT
#undef HADAL_DS_32
#undef HADAL_OPERANDS_32
#undef HADAL_ADD_32
#undef HADAL_DS_48
#undef HADAL_OPERANDS_48
#undef HADAL_ADD_48
#undef HADAL_DS_64
#undef HADAL_OPERANDS_64
#undef HADAL_ADD_64
#undef HADAL_DS_80
#undef HADAL_OPERANDS_80
#undef HADAL_ADD_80
#undef HADAL_DS_96
#undef HADAL_OPERANDS_96
#undef HADAL_ADD_96
#undef HADAL_D16
#undef HADAL_D4

}  // namespace hadal::cuda
