#include "compute/backends/cuda/fp8_places.h"

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "compute/formats/elements.h"

// The host half of E4M3 products: weights and rows agree on the order of inputs, FP4 codes become
// E4M3 codes of the same values, and jobs cover a product once.
namespace hadal::cuda {
namespace {

// PRMT with selectors of three bits.
uint32_t bytes_of(uint32_t low, uint32_t high, uint32_t selectors) {
  const uint64_t all = uint64_t{high} << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(selectors >> (4 * i) & 8u, 0u) << "the top bit asks for the sign of a byte";
    out |= static_cast<uint32_t>(all >> (8 * (selectors >> (4 * i) & 7u)) & 0xFFu) << (8 * i);
  }
  return out;
}

// A word of FP4 codes as wide_fp8.cu turns it into two of E4M3.
std::array<uint32_t, 2> fp4_to_fp8(uint32_t word, int power) {
  const uint32_t low = fp4_magnitudes(power, 0), high = fp4_magnitudes(power, 1);
  const uint32_t selectors = fp4_selectors(word);
  const uint32_t even = bytes_of(low, high, selectors & 0xFFFFu);
  const uint32_t odd = bytes_of(low, high, selectors >> 16);
  return {bytes_of(even, odd, fp4_order(0)) | fp4_signs(word, 0),
          bytes_of(even, odd, fp4_order(1)) | fp4_signs(word, 1)};
}

uint32_t packed_fp4(const std::array<uint32_t, 8>& codes) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) word |= fp4_in_word(codes[static_cast<size_t>(i)], i);
  return word;
}

TEST(Fp8Places, EveryFp4CodeBecomesItsValueAtThePlaceOfItsInput) {
  uint32_t seed = 1;
  for (int power = kMinFp4Power; power <= kMaxFp4Power; ++power) {
    for (int turn = 0; turn < 200; ++turn) {
      std::array<uint32_t, 8> codes;
      for (size_t i = 0; i < 8; ++i) {
        seed = seed * 1664525u + 1013904223u;
        codes[i] = turn < 16 ? static_cast<uint32_t>(turn + (i == 3 ? 5 : 0)) % 16 : seed >> 28;
      }
      const std::array<uint32_t, 2> got = fp4_to_fp8(packed_fp4(codes), power);
      for (int half = 0; half < 2; ++half) {
        for (int p = 0; p < 4; ++p) {
          const auto input = static_cast<size_t>(fp8_code_input(true, half, p));
          const float want =
              std::ldexp(formats::e2m1_to_float(static_cast<uint8_t>(codes[input])), power);
          const auto byte = static_cast<uint8_t>(got[static_cast<size_t>(half)] >> (8 * p));
          EXPECT_EQ(formats::e4m3_to_float(byte), want) << "power " << power << " input " << input;
          EXPECT_EQ(std::signbit(formats::e4m3_to_float(byte)), std::signbit(want));
        }
      }
    }
  }
}

TEST(Fp8Places, EveryFp8CodeComesBackAtThePlaceOfItsInput) {
  for (uint32_t code = 0; code < 256; ++code) {
    const std::array<uint32_t, 4> codes = {code, 255 - code, (code * 37 + 11) & 255, code ^ 0x5A};
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= fp8_in_word(codes[static_cast<size_t>(i)], i);
    const uint32_t got = bytes_of(fp8_whole(word, 0), fp8_whole(word, 1), fp8_order());
    for (int half = 0; half < 2; ++half) {
      for (int p = 0; p < 4; ++p) {
        const int input = fp8_code_input(false, half, p) - 4 * half;
        EXPECT_EQ(got >> (8 * p) & 0xFFu, codes[static_cast<size_t>(input)]);
      }
    }
  }
}

TEST(Fp8Places, EveryInputHasOnePlaceInARow) {
  for (const bool fp4 : {false, true}) {
    std::set<int> seen;
    for (int half = 0; half < 2; ++half)
      for (int p = 0; p < 4; ++p) seen.insert(fp8_code_input(fp4, half, p));
    EXPECT_EQ(seen.size(), 8u);
    EXPECT_EQ(*seen.rbegin(), 7);
  }
}

// As repack.cu places them: slice after slice, a head before the blocks of each.
TEST(Fp8Places, BlocksAndFieldsStandWhereSlicesPutThem) {
  for (int n_blocks = 1; n_blocks <= 512; ++n_blocks) {
    const int head = ((n_blocks + kSlices - 1) / kSlices + 15) / 16 * 16;
    int64_t at = 0;
    std::vector<int64_t> begin(static_cast<size_t>(n_blocks));
    for (int slice = 0; slice < kSlices; ++slice) {
      const int64_t fields = at;
      at += head;
      for (int b = slice_begin(slice, n_blocks); b < slice_begin(slice + 1, n_blocks); ++b) {
        ASSERT_EQ(slice_of(b, n_blocks), slice) << b << " of " << n_blocks;
        ASSERT_EQ(fp8_block_at(b, slice, head), at);
        ASSERT_EQ(fp8_field_at(b, slice, n_blocks, head),
                  fields + b - slice_begin(slice, n_blocks));
        begin[static_cast<size_t>(b)] = at;
        at += 512;
      }
    }
    for (int b = 0; b < n_blocks; b += kWindowBlocks) {
      const int last = std::min(b + kWindowBlocks, n_blocks) - 1;
      const int64_t gap = begin[static_cast<size_t>(last)] - begin[static_cast<size_t>(b)] -
                          int64_t{last - b} * 512;
      ASSERT_LE(gap, kWindowHeadBytes) << n_blocks;
      ASSERT_EQ(gap % 16, 0);
    }
  }
}

TEST(Fp8Places, MagnitudesAreE4m3OfAllPowers) {
  constexpr std::array<float, 8> kValues = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int power = kMinFp4Power; power <= kMaxFp4Power; ++power) {
    for (int i = 0; i < 8; ++i) {
      const auto byte = static_cast<uint8_t>(fp4_magnitudes(power, i / 4) >> (8 * (i % 4)));
      EXPECT_EQ(formats::e4m3_to_float(byte), std::ldexp(kValues[static_cast<size_t>(i)], power));
    }
  }
}

TEST(Fp8Jobs, CoverEveryRowAndStripOnce) {
  for (const int rows : {257, 300, 512, 1000, 2049, 8192}) {
    for (const int strips : {1, 7, 8, 112, 321}) {
      const Fp8Space space = {strips, rows, fp8_tile_rows(rows, strips, 132)};
      ASSERT_EQ(space.tile_rows % 32, 0);
      ASSERT_LE(space.tile_rows, kFp8TileRows);
      std::vector<int> seen(static_cast<size_t>((rows + 7) / 8 * strips));
      for (int64_t i = 0; i < space.n_jobs(); ++i) {
        const Fp8Job job = space.at(i);
        ASSERT_EQ(job.first_row % 8, 0);
        ASSERT_GT(job.n_rows, 0);
        ASSERT_LE(job.first_row + job.n_rows, rows);
        ASSERT_LE(job.first_strip + job.n_strips, strips);
        for (int r = job.first_row; r < job.first_row + job.n_rows; r += 8)
          for (int s = job.first_strip; s < job.first_strip + job.n_strips; ++s)
            ++seen[static_cast<size_t>(r / 8 * strips + s)];
      }
      for (const int n : seen) ASSERT_EQ(n, 1) << rows << " rows, " << strips << " strips";
    }
  }
}

TEST(Fp8Jobs, SmallProductsAreCutFinerAndLargeOnesAreNot) {
  EXPECT_EQ(fp8_tile_rows(8192, 2048, 132), kFp8TileRows);
  EXPECT_LT(fp8_tile_rows(512, 112, 132), kFp8TileRows);
}

}  // namespace
}  // namespace hadal::cuda
