#include "compute/backends/cuda/fp8_places.h"

#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "compute/formats/elements.h"

// The host half of E4M3 products: weights and rows agree on the order of inputs, FP4 codes become
// E4M3 codes of the same values.
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

// A word of FP4 codes as fp8_weights.cuh turns it into two of E4M3.
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
          const auto input = static_cast<size_t>(fp8_code_input(half, p));
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

TEST(Fp8Places, EveryInputHasOnePlaceInARow) {
  std::set<int> seen;
  for (int half = 0; half < 2; ++half)
    for (int p = 0; p < 4; ++p) seen.insert(fp8_code_input(half, p));
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(*seen.rbegin(), 7);
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

}  // namespace
}  // namespace hadal::cuda
