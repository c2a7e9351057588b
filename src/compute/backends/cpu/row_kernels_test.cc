#include "compute/backends/cpu/row_kernels.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "compute/backends/cpu/cpu_level.h"
#include "compute/backends/cpu/select.h"
#include "compute/formats/quantise.h"

namespace hadal::cpu {
namespace {

struct Named {
  const char* name;
  const RowKernels* kernels;
};

std::vector<Named> compiled_levels() {
  std::vector<Named> out = {{"base", &kRowKernelsBase}};
  for (const CpuLevel level : supported_levels()) {
    if (level == CpuLevel::kAvx2) out.push_back({"avx2", &kRowKernelsAvx2});
    if (level == CpuLevel::kAvx512) out.push_back({"avx512", &kRowKernelsAvx512});
  }
  return out;
}

// Deterministic values of mixed magnitude.
class Values {
 public:
  float next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    const auto bits = static_cast<uint32_t>(state_ >> 33);
    const float unit = static_cast<float>(bits & 0xFFFFFF) / 8388608.0f - 1.0f;
    return std::ldexp(unit, static_cast<int>(bits >> 28) - 4);
  }
  std::vector<float> floats(int64_t n) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = next();
    return v;
  }
  std::vector<uint16_t> bf16(int64_t n) {
    std::vector<uint16_t> v(static_cast<size_t>(n));
    for (uint16_t& x : v) {
      const float f = next();
      uint32_t u;
      std::memcpy(&u, &f, 4);
      x = static_cast<uint16_t>(u >> 16);
    }
    return v;
  }
  std::vector<uint8_t> bytes(int64_t n, int limit = 256) {
    std::vector<uint8_t> v(static_cast<size_t>(n));
    for (uint8_t& x : v) {
      state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
      x = static_cast<uint8_t>((state_ >> 40) % static_cast<uint64_t>(limit));
    }
    return v;
  }

 private:
  uint64_t state_ = 42;
};

constexpr int64_t kWidths[] = {16, 32, 96, 160, 256, 224, 40, 7};

// Runs `f(kernels, width) -> bytes` on every level and expects the same bytes.
template <class F>
void expect_equal_levels(F f) {
  for (const int64_t n : kWidths) {
    const auto want = f(kRowKernelsBase, n);
    for (const Named& level : compiled_levels())
      EXPECT_EQ(f(*level.kernels, n), want) << level.name << " width " << n;
  }
}

TEST(RowKernels, NormsAreBitEqualOnEveryLevel) {
  expect_equal_levels([](const RowKernels& k, int64_t n) {
    Values v;
    const auto x = v.bf16(n), w = v.bf16(n);
    std::vector<uint16_t> h(static_cast<size_t>(n));
    k.rms(x.data(), w.data(), n, 1e-20f, h.data());
    return h;
  });
  expect_equal_levels([](const RowKernels& k, int64_t n) {
    Values v;
    return k.sum_squares(v.bf16(n).data(), n);
  });
}

TEST(RowKernels, StreamsAreBitEqualOnEveryLevel) {
  for (const int32_t c : {2, 3, 4}) {
    expect_equal_levels([c](const RowKernels& k, int64_t n) {
      Values v;
      auto x = v.bf16(n * c);
      const auto y = v.bf16(n);
      const auto post = v.floats(c), comb = v.floats(c * c);
      k.expand(x.data(), y.data(), post.data(), comb.data(), c, n, 0, n);
      std::vector<uint16_t> out(static_cast<size_t>(n));
      k.collapse(x.data(), post.data(), c, n, out.data());
      x.insert(x.end(), out.begin(), out.end());
      k.mean_streams(x.data(), c, n, out.data());
      x.insert(x.end(), out.begin(), out.end());
      return x;
    });
  }
}

TEST(RowKernels, ActivationsAndPoolsAreBitEqualOnEveryLevel) {
  expect_equal_levels([](const RowKernels& k, int64_t n) {
    Values v;
    const auto g = v.bf16(n), u = v.bf16(n);
    std::vector<uint16_t> out(static_cast<size_t>(n));
    k.swiglu(g.data(), u.data(), 0.37f, 10.0f, n, out.data());
    const auto a = v.floats(2 * n), b = v.floats(2 * n);
    const float* members[] = {a.data(), b.data()};
    std::vector<uint16_t> pooled(static_cast<size_t>(n));
    k.pool_group(members, 2, n, pooled.data());
    out.insert(out.end(), pooled.begin(), pooled.end());
    return out;
  });
}

TEST(RowKernels, EngramIsBitEqualOnEveryLevel) {
  expect_equal_levels([](const RowKernels& k, int64_t n) {
    Values v;
    auto h = v.bf16(n);
    const auto qw = v.bf16(n), kw = v.bf16(n), key = v.bf16(n);
    float sums[3];
    k.engram_sums(h.data(), qw.data(), kw.data(), key.data(), n, sums);
    k.add_scaled(key.data(), 0.61f, n, h.data());
    std::vector<float> out(sums, sums + 3);
    for (const uint16_t x : h) out.push_back(x);
    return out;
  });
}

TEST(RowKernels, QuantisersAreBitEqualOnEveryLevel) {
  for (const int64_t n : {32, 64, 512}) {
    const auto run = [n](const RowKernels& k) {
      Values v;
      const auto x = v.bf16(n);
      std::vector<uint16_t> snapped(static_cast<size_t>(n));
      k.snap8(x.data(), n, snapped.data());
      std::vector<uint8_t> out(static_cast<size_t>(6 * n));
      std::memcpy(out.data(), snapped.data(), static_cast<size_t>(2 * n));
      k.pack_window(x.data(), static_cast<int32_t>(n), out.data() + 2 * n);
      k.pack_entry(x.data(), static_cast<int32_t>(n), out.data() + 4 * n);
      k.pack_key(x.data(), static_cast<int32_t>(n), out.data() + 5 * n, out.data() + 5 * n + n / 2);
      return out;
    };
    const auto want = run(kRowKernelsBase);
    for (const Named& level : compiled_levels()) EXPECT_EQ(run(*level.kernels), want) << level.name;
  }
}

// Every finite bf16 number, beside neighbours of its own magnitude and scaled copies of a few
// patterns that hit each rounding tie.
TEST(RowKernels, QuantisersAreThoseOfTheFormatsToTheBit) {
  std::vector<uint16_t> all;
  for (uint32_t u = 0; u < 0x8000; ++u) {
    if ((u & 0x7F80) == 0x7F80) continue;
    all.push_back(static_cast<uint16_t>(u % 3 == 0 ? u | 0x8000 : u));
  }
  Values v;
  for (int i = 0; i < 4096; ++i) {
    const auto top = static_cast<uint16_t>(0x3F80 + 8 * (i % 200));
    for (int j = 0; j < 32; ++j) {
      const float f = formats::bf16_to_float(top) * std::round(v.next() * 4) / 64;
      all.push_back(j == 0 ? top : formats::bf16_from_float(f));
    }
  }
  const auto n = static_cast<int64_t>(all.size()) / 32 * 32;
  uint8_t got[64], want[64];
  uint16_t values[32], want_values[32];
  for (const Named& level : compiled_levels()) {
    for (int64_t i = 0; i < n; i += 32) {
      const uint16_t* x = all.data() + i;
      level.kernels->snap8(x, 32, values);
      formats::aq8_values(x, 32, want_values);
      ASSERT_EQ(std::memcmp(values, want_values, 64), 0) << level.name << " group " << i;
      level.kernels->pack_window(x, 32, got);
      formats::pack_window(x, 32, want);
      ASSERT_EQ(std::memcmp(got, want, 33), 0) << level.name << " window " << i;
      level.kernels->pack_key(x, 32, got, got + 16);
      formats::pack_key(x, 32, want, want + 16);
      ASSERT_EQ(std::memcmp(got, want, 17), 0) << level.name << " key " << i;
      level.kernels->pack_entry(x, 32, got);
      formats::pack_entry(x, 32, want);
      ASSERT_EQ(std::memcmp(got, want, 18), 0) << level.name << " entry " << i;
    }
  }
}

TEST(RowKernels, ExponentialIsGoodToOneRoundingAndEqualOnEveryLevel) {
  for (double x = -120; x < 90; x += 0.0137) {
    const double want = std::exp(x);
    const double got = kRowKernelsBase.exp(x);
    ASSERT_NEAR(got / want, 1.0, 1e-11) << x;
    for (const Named& level : compiled_levels())
      ASSERT_EQ(level.kernels->exp(x), got) << level.name;
  }
  EXPECT_EQ(static_cast<float>(kRowKernelsBase.exp(-std::numeric_limits<double>::infinity())),
            0.0f);
}

// Attention of `n_heads` heads over window records and entries.
std::vector<uint16_t> attend_with(const RowKernels& k, int32_t n_heads, int32_t d, int32_t n_window,
                                  int32_t n_entries) {
  Values v;
  const auto q = v.bf16(n_heads * d);
  const auto sink = v.floats(n_heads);
  std::vector<std::vector<uint8_t>> records;
  std::vector<AttendKey> keys;
  std::vector<int32_t> ends;
  std::vector<uint16_t> x;
  for (int32_t i = 0; i < n_window + n_entries; ++i) {
    x = v.bf16(d);
    records.emplace_back(static_cast<size_t>(2 * d));
    if (i < n_window) {
      kRowKernelsBase.pack_window(x.data(), d, records.back().data());
    } else {
      kRowKernelsBase.pack_entry(x.data(), d, records.back().data());
    }
    if (i > 0 && i % 64 == 0) ends.push_back(i);
  }
  ends.push_back(n_window + n_entries);
  for (int32_t i = 0; i < n_window + n_entries; ++i)
    keys.push_back({records[static_cast<size_t>(i)].data(), i < n_window});
  std::vector<uint16_t> out(static_cast<size_t>(n_heads * d));
  std::vector<float> memory(static_cast<size_t>(2 * n_heads * d + 64 * d + n_heads * 66 + 64));
  float* at = memory.data();
  const auto take = [&](int64_t n) {
    float* p = at;
    at += n;
    return p;
  };
  AttendScratch s{};
  s.q = take(n_heads * d);
  s.keys = take(64 * d);
  s.score = take(n_heads * 64);
  s.out = take(n_heads * d);
  s.max = take(n_heads);
  s.den = take(n_heads);
  AttendJob job{};
  job.q = q.data();
  job.sink = sink.data();
  job.out = out.data();
  job.keys = keys.data();
  job.block_ends = ends.data();
  job.n_blocks = static_cast<int32_t>(ends.size());
  job.n_heads = n_heads;
  job.d = d;
  k.attend(job, s);
  return out;
}

TEST(RowKernels, AttentionIsBitEqualOnEveryLevel) {
  for (const int32_t heads : {1, 3, 4, 8, 12}) {
    for (const int32_t d : {32, 64, 96, 512}) {
      for (const int32_t entries : {0, 1, 24, 89}) {
        const auto want = attend_with(kRowKernelsBase, heads, d, 40, entries);
        for (const Named& level : compiled_levels()) {
          EXPECT_EQ(attend_with(*level.kernels, heads, d, 40, entries), want)
              << level.name << " heads " << heads << " d " << d << " entries " << entries;
        }
      }
    }
  }
}

TEST(RowKernels, ScoresAreBitEqualOnEveryLevel) {
  const auto run = [](const RowKernels& k) {
    Values v;
    constexpr int32_t kHeads = 6, kD = 64;
    std::vector<float> codes, scales, q_codes, q_scales;
    for (const uint8_t b : v.bytes(kD * 16, 25)) codes.push_back(static_cast<float>(b) - 12.0f);
    for (const uint8_t b : v.bytes(kD / 32 * 16, 6)) scales.push_back(std::ldexp(1.0f, b - 3));
    for (const uint8_t b : v.bytes(kHeads * kD, 25))
      q_codes.push_back(static_cast<float>(b) - 12.0f);
    for (const uint8_t b : v.bytes(kHeads * kD / 32, 6))
      q_scales.push_back(std::ldexp(1.0f, b - 3));
    const auto weight = v.floats(kHeads);
    const ScoreQuery query{q_codes.data(), q_scales.data(), weight.data()};
    std::vector<float> out(16);
    float* rows[] = {out.data()};
    k.score({codes.data(), scales.data()}, &query, 1, kHeads, kD, 0.0625f, rows);
    return out;
  };
  for (const Named& level : compiled_levels())
    EXPECT_EQ(run(*level.kernels), run(kRowKernelsBase)) << level.name;
}

TEST(SelectTop, TakesTheLargestAndTheLowerPositionOfEqualScores) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> s = {1, 3, -inf, 3, 2, std::nanf(""), 3, -0.0f, 0.0f};
  int32_t out[9];
  ASSERT_EQ(select_top(s.data(), 9, 2, out), 2);
  EXPECT_EQ(std::vector<int32_t>(out, out + 2), (std::vector<int32_t>{1, 3}));
  ASSERT_EQ(select_top(s.data(), 9, 6, out), 6);
  EXPECT_EQ(std::vector<int32_t>(out, out + 6), (std::vector<int32_t>{0, 1, 3, 4, 6, 7}));
  ASSERT_EQ(select_top(s.data(), 9, 9, out), 7);  // -inf and NaN are never chosen
  EXPECT_EQ(select_top(s.data(), 0, 4, out), 0);
}

}  // namespace
}  // namespace hadal::cpu
