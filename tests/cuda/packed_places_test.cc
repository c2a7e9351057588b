#include "compute/backends/cuda/packed_places.h"

#include <cmath>

#include <gtest/gtest.h>

#include "compute/formats/elements.h"

// The host half of how the CUDA backend packs weights: what goes into a word comes out as the
// code's value. Multiplication by the power of two is the device's half (bench/cuda/dense_check).
namespace hadal::cuda {
namespace {

float half_of(uint32_t pair, int half) {
  return formats::bf16_to_float(static_cast<uint16_t>(pair >> (half * 16)));
}

TEST(PackedPlaces, EveryFp4CodeComesBackFromEveryPlaceBesideEveryOther) {
  for (uint32_t code = 0; code < 16; ++code) {
    for (uint32_t other = 0; other < 16; ++other) {
      for (int input = 0; input < 8; ++input) {
        uint32_t word = 0;
        for (int i = 0; i < 8; ++i) word |= fp4_in_word(i == input ? code : other, i);
        for (int i = 0; i < 8; ++i) {
          const float got = half_of(fp4_pair(word, i / 2), i % 2) * 0x1p126f;
          const float want =
              formats::e2m1_to_float(static_cast<uint8_t>(i == input ? code : other));
          EXPECT_EQ(got, want) << "input " << i << " of a word with code " << code;
          EXPECT_EQ(std::signbit(got), std::signbit(want));
        }
      }
    }
  }
}

TEST(PackedPlaces, CodesOfAWordShareNoBit) {
  for (int a = 0; a < 8; ++a)
    for (int b = 0; b < a; ++b) EXPECT_EQ(fp4_in_word(15, a) & fp4_in_word(15, b), 0u);
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < a; ++b) EXPECT_EQ(fp8_in_word(255, a) & fp8_in_word(255, b), 0u);
}

TEST(PackedPlaces, EveryFp8CodeComesBackFromEveryPlaceBesideOthers) {
  for (uint32_t code = 0; code < 256; ++code) {
    if (formats::e4m3_is_nan(static_cast<uint8_t>(code))) continue;
    for (const uint32_t other : {0x00u, 0x5Au, 0x81u, 0x7Eu, 0x0Fu, 0xF0u}) {
      for (int input = 0; input < 4; ++input) {
        uint32_t word = 0;
        for (int i = 0; i < 4; ++i) word |= fp8_in_word(i == input ? code : other, i);
        for (int i = 0; i < 4; ++i) {
          const uint32_t pair = i < 2 ? fp8_first(word) : fp8_second(word);
          const float got = half_of(pair, i % 2) * 0x1p120f;
          const float want =
              formats::e4m3_to_float(static_cast<uint8_t>(i == input ? code : other));
          EXPECT_EQ(got, want) << "input " << i << " of a word with code " << code;
          EXPECT_EQ(std::signbit(got), std::signbit(want));
        }
      }
    }
  }
}

TEST(PackedPlaces, SlicesCoverTheBlocksOnceAndInOrder) {
  for (int n_blocks = 1; n_blocks < 600; ++n_blocks) {
    EXPECT_EQ(slice_begin(0, n_blocks), 0);
    EXPECT_EQ(slice_begin(kSlices, n_blocks), n_blocks);
    for (int s = 0; s < kSlices; ++s) {
      const int size = slice_begin(s + 1, n_blocks) - slice_begin(s, n_blocks);
      EXPECT_GE(size, 0);
      EXPECT_LE(size, (n_blocks + kSlices - 1) / kSlices);  // what the head of a slice has room for
    }
  }
}

}  // namespace
}  // namespace hadal::cuda
