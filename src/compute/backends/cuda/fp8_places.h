#pragma once

#include <algorithm>
#include <cstdint>

#include "compute/backends/cuda/packed_places.h"

// Where the operands of E4M3 products (wide_fp8.h) lie, and how they are cut into jobs. Pure and
// free of CUDA, so that it is tested without a GPU; compiled for the device with
// --expt-relaxed-constexpr.
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
// 8c + fp8_code_input(format, half, p): the order in which packed.h hands weights to lanes.
inline constexpr int kRowTileBytes = 8 * kWindow, kRowTileScales = 8 * 4;
constexpr int64_t fp8_window_bytes(int64_t n_rows) {
  return (n_rows + 7) / 8 * (kRowTileBytes + kRowTileScales);
}
constexpr int64_t fp8_row_bytes(int64_t n_rows, int64_t k) {
  return (k + kWindow - 1) / kWindow * fp8_window_bytes(n_rows);
}
constexpr int fp8_code_input(bool fp4, int half, int place) {
  constexpr int kFp8[8] = {0, 2, 1, 3, 4, 6, 5, 7}, kFp4[8] = {6, 2, 7, 3, 4, 0, 5, 1};
  return fp4 ? kFp4[half * 4 + place] : kFp8[half * 4 + place];
}

// Four E4M3 codes of a packed word, whole again: of inputs 0 and 1 (half 0) or 2 and 3 in the bytes
// 0 and 2; the other bytes are of no use. fp8_order() of (half 0, half 1) is the operand's word.
constexpr uint32_t fp8_whole(uint32_t word, int half) {
  constexpr uint32_t kLow = 0x000F000Fu, kMagnitude = 0x007F007Fu;
  if (half == 0) return ((word >> 4) & kMagnitude) | ((word >> 8) & ~kMagnitude);
  const uint32_t magnitude = (word & kLow) | ((word >> 8) & ~kLow);
  return (magnitude & kMagnitude) | ((word >> 4) & ~kMagnitude);
}
constexpr uint32_t fp8_order() {
  return 0x6240u;
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

// The fields of a packed kFp8Tile strip: the slice of a block, where the block stands, and where
// its exponent field.
constexpr int slice_of(int block, int n_blocks) {
  return (kSlices * block + kSlices - 1) / n_blocks;
}
constexpr int64_t fp8_block_at(int block, int slice, int head_bytes) {
  return int64_t{slice + 1} * head_bytes + int64_t{block} * 512;
}
constexpr int64_t fp8_field_at(int block, int slice, int n_blocks, int head_bytes) {
  const int begin = slice_begin(slice, n_blocks);
  return int64_t{slice} * head_bytes + int64_t{begin} * 512 + (block - begin);
}
// Heads inside a window: of at most kSlices slices.
inline constexpr int kWindowHeadBytes = 128;

// Jobs: up to 256 rows by kFp8Strips strips of outputs.
inline constexpr int kFp8Strips = 8;
inline constexpr int kFp8TileRows = 256;
// Of a list (big_list_fp8.h): with more a thread's registers do not hold two windows of weights.
inline constexpr int kFp8LongTileRows = 160;
inline constexpr int kFp8SuperRows = 2048;  // rows that stay in L2 while all weights pass

// Rows of a job where every job takes the same weights: the least turns of all multiprocessors, a
// turn as long as its rows and the weights' way to registers, which costs as much as 40 rows.
constexpr int fp8_tile_rows(int64_t n_rows, int n_strips, int sm_count) {
  int best = kFp8TileRows;
  int64_t best_cost = -1;
  for (int rows = kFp8TileRows; rows >= 64; rows -= 32) {
    const int64_t jobs = (n_rows + rows - 1) / rows * ((n_strips + kFp8Strips - 1) / kFp8Strips);
    const int64_t cost = (jobs + sm_count - 1) / sm_count * (rows + 40);
    if (best_cost >= 0 && cost >= best_cost) continue;
    best = rows;
    best_cost = cost;
  }
  return best;
}

struct Fp8Job {
  int32_t group = 0, first_row = 0, n_rows = 0;
  int32_t first_strip = 0, n_strips = 0;
};
struct Fp8Space {
  int32_t n_strips = 0, n_rows = 0, tile_rows = kFp8TileRows;

  constexpr int64_t across() const { return (n_strips + kFp8Strips - 1) / kFp8Strips; }
  constexpr int64_t row_tiles() const { return (n_rows + tile_rows - 1) / tile_rows; }
  constexpr int64_t n_jobs() const { return across() * row_tiles(); }
  // The strips of some kFp8SuperRows rows one after the other, for each of them its row tiles.
  constexpr Fp8Job at(int64_t index) const {
    const int64_t super_tiles = kFp8SuperRows / tile_rows;
    const int64_t super = index / (super_tiles * across());
    const int64_t inside = index % (super_tiles * across());
    const int64_t left = row_tiles() - super * super_tiles;
    const int64_t tiles = left < super_tiles ? left : super_tiles;
    const auto row = static_cast<int32_t>((super * super_tiles + inside % tiles) * tile_rows);
    const auto strip = static_cast<int32_t>(inside / tiles) * kFp8Strips;
    return {0, row, n_rows - row < tile_rows ? n_rows - row : tile_rows, strip,
            n_strips - strip < kFp8Strips ? n_strips - strip : kFp8Strips};
  }
};

}  // namespace hadal::cuda
