#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compute/formats/quantise.h"

namespace hadal::formats {
namespace {

// Published pairs: input, result.
constexpr std::pair<float, float> kE2m1Pairs[] = {
    {0.0f, 0.0f},  {0.24f, 0.0f},   {0.25f, 0.0f}, {0.26f, 0.5f}, {0.74f, 0.5f}, {0.75f, 1.0f},
    {0.76f, 1.0f}, {1.25f, 1.0f},   {1.26f, 1.5f}, {1.75f, 2.0f}, {1.74f, 1.5f}, {2.5f, 2.0f},
    {2.51f, 3.0f}, {3.5f, 4.0f},    {3.49f, 3.0f}, {5.0f, 4.0f},  {5.01f, 6.0f}, {6.0f, 6.0f},
    {7.5f, 6.0f},  {-0.75f, -1.0f}, {-5.0f, -4.0f}};
constexpr std::pair<float, float> kScale8Pairs[] = {
    {448.0f, 0.0f}, {449.0f, 1.0f},  {1.0f, -8.0f},  {0.5f, -9.0f},
    {3.5f, -7.0f},  {224.0f, -1.0f}, {225.0f, 0.0f}, {1e-06f, -22.0f}};
constexpr std::pair<float, float> kScale4Pairs[] = {{6.0f, 0.0f},   {6.1f, 1.0f},  {1.0f, -2.0f},
                                                    {0.75f, -3.0f}, {3.0f, -1.0f}, {1.5f, -2.0f},
                                                    {12.0f, 1.0f}};

// The definition in f64, by search: nearest value, at a tie the even code.
template <typename Decode>
uint8_t searched(double a, int n_codes, Decode decode) {
  int best = 0;
  for (int code = 1; code < n_codes; ++code) {
    const double gain = std::fabs(decode(best) - a) - std::fabs(decode(code) - a);
    if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best);
}
double e4m3_magnitude(int code) {
  const int e = code >> 3, m = code & 7;
  return e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
}
double e2m1_magnitude(int code) {
  const int e = code >> 1, m = code & 1;
  return e == 0 ? m * 0.5 : std::ldexp(2 + m, e - 2);
}

std::vector<float> finite_bf16() {
  std::vector<float> out;
  for (uint32_t u = 0; u < 65536; ++u) {
    const float x = bf16_to_float(static_cast<uint16_t>(u));
    if (std::isfinite(x)) out.push_back(x);
  }
  return out;
}

TEST(E4m3, DecodesAllBytes) {
  for (int code = 0; code < 256; ++code) {
    const float x = e4m3_to_float(static_cast<uint8_t>(code));
    if (e4m3_is_nan(static_cast<uint8_t>(code))) {
      EXPECT_TRUE(std::isnan(x));
      continue;
    }
    EXPECT_EQ(std::fabs(x), e4m3_magnitude(code & 0x7F)) << code;
    EXPECT_EQ(std::signbit(x), code >= 128) << code;
    EXPECT_EQ(e4m3_from_float(x), code);
  }
}

TEST(E4m3, EncodesEveryBf16ToTheNearestAndTiesToEven) {
  for (const float x : finite_bf16()) {
    const double a = std::min(448.0, std::fabs(static_cast<double>(x)));
    const int want = searched(a, 127, e4m3_magnitude) | (std::signbit(x) ? 0x80 : 0);
    ASSERT_EQ(e4m3_from_float(x), want) << x;
  }
  for (int code = 0; code < 126; ++code) {  // all midpoints and their neighbours in f32
    const auto mid = static_cast<float>((e4m3_magnitude(code) + e4m3_magnitude(code + 1)) / 2);
    EXPECT_EQ(e4m3_from_float(mid), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(e4m3_from_float(std::nextafter(mid, 0.0f)), code);
    EXPECT_EQ(e4m3_from_float(std::nextafter(mid, 1e9f)), code + 1);
  }
  EXPECT_EQ(e4m3_from_float(1e30f), 0x7E);
  EXPECT_EQ(e4m3_from_float(-std::numeric_limits<float>::infinity()), 0xFE);
  EXPECT_TRUE(e4m3_is_nan(e4m3_from_float(std::numeric_limits<float>::quiet_NaN())));
}

TEST(E2m1, EncodesEveryBf16ToTheNearestAndTiesToEven) {
  for (const float x : finite_bf16()) {
    const double a = std::min(6.0, std::fabs(static_cast<double>(x)));
    const int want = searched(a, 8, e2m1_magnitude) | (std::signbit(x) ? 8 : 0);
    ASSERT_EQ(e2m1_from_float(x), want) << x;
  }
  for (int code = 0; code < 16; ++code)
    EXPECT_EQ(e2m1_from_float(e2m1_to_float(static_cast<uint8_t>(code))), code);
  for (const auto& [x, want] : kE2m1Pairs) EXPECT_EQ(e2m1_to_float(e2m1_from_float(x)), want) << x;
}

TEST(E8m0, DecodesAllBytes) {
  for (int byte = 0; byte < 255; ++byte)
    EXPECT_EQ(e8m0_to_float(static_cast<uint8_t>(byte)), std::ldexp(1.0, byte - 127));
  EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

TEST(Pow2Ceil, IsTheLeastPowerNotBelow) {
  for (const auto& [top, exponent] : kScale8Pairs)
    EXPECT_EQ(pow2ceil(std::max(top, 1e-4f) * (1.0f / 448.0f)) - 127, exponent) << top;
  for (const auto& [top, exponent] : kScale4Pairs)
    EXPECT_EQ(pow2ceil(top * (1.0f / 6.0f)) - 127, exponent) << top;
  for (const float x : finite_bf16()) {
    if (!(x >= 0x1p-126f) || x > 0x1p126f) continue;
    const double power = std::ldexp(1.0, pow2ceil(x) - 127);
    ASSERT_TRUE(power >= x && power / 2 < x) << x;
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for (uint32_t u = 0; u < 65536; ++u) {
    const auto bits = static_cast<uint16_t>(u);
    const float x = bf16_to_float(bits);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(bf16_from_float(x))));
      continue;
    }
    ASSERT_EQ(bf16_from_float(x), bits);
    if ((u & 0x7FFF) >= 0x7F7F) continue;
    const auto mid = std::bit_cast<float>((u << 16) | 0x8000u);
    ASSERT_EQ(bf16_from_float(mid), u % 2 == 0 ? u : u + 1);
    ASSERT_EQ(bf16_from_float(std::bit_cast<float>((u << 16) | 0x7FFFu)), u);
    ASSERT_EQ(bf16_from_float(std::bit_cast<float>((u << 16) | 0x8001u)), u + 1);
  }
}

// Every bf16 value as the largest of its group: the scale holds it, and quantising again changes
// nothing that was quantised.
TEST(Quantisers, HoldTheLargestValueAndAreStable) {
  for (uint32_t u = 0; u < 0x7F80; ++u) {
    uint16_t x[32] = {}, once[32], twice[32];
    for (uint32_t i = 0; i < 32; ++i) x[i] = static_cast<uint16_t>(u - u * i / 64);
    const float top = bf16_to_float(x[0]);
    aq8_values(x, 32, once);
    aq8_values(once, 32, twice);
    if (top >= 1e-4f && top < 0x1.fp127f) {
      ASSERT_LE(std::fabs(bf16_to_float(once[0]) - top), top / 16) << top;
      ASSERT_TRUE(std::equal(once, once + 32, twice)) << top;
    }
    if (top > 0x1p120f) continue;  // beyond the range of the scale byte
    fq4e8_values(x, 32, once);
    if (top >= 6 * 0x1p-126f) {
      ASSERT_LE(std::fabs(bf16_to_float(once[0]) - top), top / 4) << top;
    }
  }
}

TEST(Quantisers, HaveTheirFloors) {
  const uint16_t zeros[32] = {};
  uint8_t codes[32];
  EXPECT_EQ(aq8(zeros, codes), 127 - 22);
  EXPECT_EQ(fq4e8(zeros, codes), 1);
  EXPECT_EQ(fq4e4(zeros, codes), 1);  // 2^-9, the least E4M3
  for (int i = 0; i < 8; ++i) EXPECT_EQ(codes[i], 0);
}

TEST(Records, HaveCodesThenScales) {
  std::vector<uint16_t> x(512);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = bf16_from_float(std::sin(static_cast<float>(i)) * static_cast<float>(1 + i / 32));
  std::vector<uint8_t> window(528), entry(288), codes(64), scales(4);
  pack_window(x.data(), 512, window.data());
  pack_entry(x.data(), 512, entry.data());
  pack_key(x.data(), 128, codes.data(), scales.data());
  std::vector<uint16_t> q8(512), q4(512), q4i(128);
  aq8_values(x.data(), 512, q8.data());
  fq4e4_values(x.data(), 512, q4.data());
  fq4e8_values(x.data(), 128, q4i.data());
  for (int i = 0; i < 512; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(bf16_to_float(q8[at]),
              e4m3_to_float(window[at]) * e8m0_to_float(window[512 + at / 32]));
    EXPECT_EQ(bf16_to_float(q4[at]),
              nibble_value(entry.data(), i) * e4m3_to_float(entry[256 + at / 16]));
    if (i < 128) {
      EXPECT_EQ(bf16_to_float(q4i[at]),
                nibble_value(codes.data(), i) * e8m0_to_float(scales[at / 32]));
    }
  }
}

}  // namespace
}  // namespace hadal::formats
