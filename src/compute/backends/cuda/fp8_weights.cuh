#pragma once

#include <cstdint>

#include "compute/backends/cuda/fp8_places.h"

// FP4 weights to E4M3 operands, exactly, by look-ups that hold the block's scale.
namespace hadal::cuda {

__device__ __forceinline__ void fp4_to_fp8(uint32_t word, uint2 table, uint32_t& first,
                                           uint32_t& second) {
  const uint32_t selectors = fp4_selectors(word);
  const uint32_t even = __byte_perm(table.x, table.y, selectors);
  const uint32_t odd = __byte_perm(table.x, table.y, selectors >> 16);
  first = __byte_perm(even, odd, fp4_order(0)) | fp4_signs(word, 0);
  second = __byte_perm(even, odd, fp4_order(1)) | fp4_signs(word, 1);
}

// A window of a warp's strip as the A operands of four products; blocks from n_blocks on are zero.
// table: of the FP4 magnitudes in shared memory, so that 8 times a field is the entry.
__device__ __forceinline__ void load_fp4_window(const uint8_t* strip, uint32_t table, int n_blocks,
                                                uint32_t (&a)[kWindowBlocks][4]) {
  constexpr int kBlockBytes = 272;
  const int lane = threadIdx.x % 32;
  uint2 code[kWindowBlocks];
  uint32_t fields[kWindowBlocks];
#pragma unroll
  for (int i = 0; i < kWindowBlocks; ++i) {
    const uint8_t* block = strip + i * kBlockBytes;
    code[i] = *reinterpret_cast<const uint2*>(block + lane * 8);
    fields[i] = *reinterpret_cast<const uint16_t*>(block + 256 + lane / 4 * 2);
    if (i >= n_blocks) {
      code[i] = make_uint2(0, 0);
      fields[i] = fields[0];  // an entry that there is
    }
  }
#pragma unroll
  for (int i = 0; i < kWindowBlocks; ++i) {
    const auto entry = [&](uint32_t field) {
      uint2 e;
      asm("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(e.x), "=r"(e.y) : "r"(table + field * 8));
      return e;
    };
    fp4_to_fp8(code[i].x, entry(fields[i] & 0xFFu), a[i][0], a[i][2]);
    fp4_to_fp8(code[i].y, entry(fields[i] >> 8), a[i][1], a[i][3]);
  }
}

}  // namespace hadal::cuda
