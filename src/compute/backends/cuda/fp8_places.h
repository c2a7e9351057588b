#pragma once

#include <algorithm>
#include <cstdint>

#include "compute/backends/cuda/packed_places.h"

// Where the operands of E4M3 products (big_list_fp8.h) lie. Pure and free of CUDA, so that it is
// tested without a GPU; compiled for the device with --expt-relaxed-constexpr.
namespace hadal::cuda {

// Four blocks of 32 inputs: what one power of two of a row and one of 16 outputs cover, and what
// the tensor cores add up before the sum goes to f32.
inline constexpr int kWindowBlocks = 4;
inline constexpr int kWindow = kWindowBlocks * 32;
constexpr int count_windows(int n_blocks) {
  return (n_blocks + kWindowBlocks - 1) / kWindowBlocks;
}

// Rows: [window] of tiles of 8 rows and, behind them, scales (f32) of all rows, so that many rows
// of a window are two copies. A tile is 8 core matrices of 8 rows by 16 bytes, two a block. Byte
// 4c + p of a row of the core matrix `half` of a block is the input
// 8c + fp8_code_input(half, p): the order in which packed.h hands FP4 weights to lanes.
inline constexpr int kRowTileBytes = 8 * kWindow, kRowTileScales = 8 * 4;
constexpr int64_t fp8_window_bytes(int64_t n_rows) {
  return (n_rows + 7) / 8 * (kRowTileBytes + kRowTileScales);
}
constexpr int64_t fp8_row_bytes(int64_t n_rows, int64_t k) {
  return (k + kWindow - 1) / kWindow * fp8_window_bytes(n_rows);
}
constexpr int fp8_code_input(int half, int place) {
  constexpr int kInput[8] = {6, 2, 7, 3, 4, 0, 5, 1};
  return kInput[half * 4 + place];
}

// Eight E2M1 codes of a packed word as selectors of bytes, four bits each: the low half names the
// magnitudes of inputs 0, 2, 5, 7, the high half of 1, 3, 4, 6.
constexpr uint32_t fp4_selectors(uint32_t word) {
  const uint32_t two = (word & 0x00770077u) | ((word >> 2) & ~0x00770077u);
  const uint32_t all = (two & ~0x40004000u) | (turned_left(word, 22) & 0x40004000u);
  return all & 0x77777777u;
}
// Signs at the tops of bytes: of inputs 6, 2, 7, 3 (half 0) and 4, 0, 5, 1 (half 1).
constexpr uint32_t fp4_signs(uint32_t word, int half) {
  const uint32_t even = half == 0 ? word : word << 4, odd = half == 0 ? word << 2 : word << 6;
  return ((odd & 0xFF00FF00u) | (even & ~0xFF00FF00u)) & 0x80808080u;
}
// From magnitudes in the order of fp4_selectors to that of fp4_signs: bytes of (low, high).
constexpr uint32_t fp4_order(int half) {
  return half == 0 ? 0x5317u : 0x4206u;
}

// E4M3 codes of the E2M1 magnitudes 0, 1/2, 1, 3/2 (half 0) and 2, 3, 4, 6 (half 1), times 2^power:
// exact for powers of kMinFp4Power and more, up to kMaxFp4Power.
inline constexpr int kMinFp4Power = -8, kMaxFp4Power = 6;
inline constexpr int kFp4Powers = kMaxFp4Power - kMinFp4Power + 1;
constexpr uint32_t fp4_magnitudes(int power, int half) {
  constexpr int kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    int m = kDoubled[half * 4 + i], e = power - 1;  // m 2^e, m below 16
    if (m == 0) continue;
    while (m < 8 && e > -9) m *= 2, --e;
    while (e < -9) m /= 2, ++e;
    word |= static_cast<uint32_t>(m < 8 ? m : (e + 10) * 8 + (m - 8)) << (8 * i);
  }
  return word;
}

// Rows of a tile at most: with more a thread's registers do not hold two windows of weights.
inline constexpr int kFp8TileRows = 160;

}  // namespace hadal::cuda
