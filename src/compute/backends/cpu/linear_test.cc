#include "compute/backends/cpu/linear.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace hadal::cpu {
namespace {

float bits_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
float from_bf16(uint16_t v) {
  return bits_float(static_cast<uint32_t>(v) << 16);
}
uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
float e4m3(uint8_t b) {
  const int e = (b >> 3) & 15, m = b & 7;
  const float x = e == 0 ? std::ldexp(static_cast<float>(m), -9)
                         : std::ldexp(static_cast<float>(8 + m), e - 10);
  return b < 128 ? x : -x;
}
float e2m1(int code) {
  constexpr float kValues[8] = {0, .5F, 1, 1.5F, 2, 3, 4, 6};
  return code < 8 ? kValues[code] : -kValues[code - 8];
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761U + 88172645463325252U) {}
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 16);
  }
  float uniform() { return static_cast<float>(next() % 20001) / 10000.F - 1.F; }
  int64_t below(int64_t n) { return static_cast<int64_t>(next()) % n; }

 private:
  uint64_t state_;
};

// A random matrix as a checkpoint holds it, and its plain values.
struct Matrix {
  WeightFormat format;
  int64_t n, k;
  std::vector<std::byte> weight, scale;

  Matrix(WeightFormat f, int64_t rows, int64_t columns, Random& random)
      : format(f),
        n(rows),
        k(columns),
        weight(static_cast<size_t>(source_weight_bytes(f, rows, columns))),
        scale(static_cast<size_t>(source_scale_bytes(f, rows, columns))) {
    if (f == WeightFormat::kF32) {
      for (size_t i = 0; i < weight.size(); i += 4) {
        const float x = random.uniform();
        std::memcpy(weight.data() + i, &x, 4);
      }
    } else if (f == WeightFormat::kBF16) {
      for (size_t i = 0; i < weight.size(); i += 2) {
        const uint16_t x = to_bf16(random.uniform());
        std::memcpy(weight.data() + i, &x, 2);
      }
    } else {
      for (std::byte& b : weight) {
        do b = static_cast<std::byte>(random.next());
        while (f == WeightFormat::kFP8 && (static_cast<uint8_t>(b) & 127) == 127);
      }
      for (std::byte& b : scale) b = static_cast<std::byte>(100 + random.below(40));
    }
  }
  WeightSource source() const { return {format, weight.data(), scale.data(), n, k}; }

  float element(int64_t row, int64_t col) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(weight.data());
    switch (format) {
      case WeightFormat::kF32: {
        float x;
        std::memcpy(&x, bytes + 4 * (row * k + col), 4);
        return x;
      }
      case WeightFormat::kBF16: {
        uint16_t x;
        std::memcpy(&x, bytes + 2 * (row * k + col), 2);
        return from_bf16(x);
      }
      case WeightFormat::kFP8:
        return e4m3(bytes[row * k + col]);
      case WeightFormat::kFP4: {
        const uint8_t b = bytes[row * ((k + 1) / 2) + col / 2];
        return e2m1(col % 2 == 0 ? b & 15 : b >> 4);
      }
    }
    return 0;
  }
  float scale_of(int64_t row, int64_t block) const {
    const int64_t blocks = (k + 31) / 32;
    uint8_t b = 127;
    if (format == WeightFormat::kFP8) {
      b = static_cast<uint8_t>(scale[static_cast<size_t>(row / 32 * blocks + block)]);
    } else if (format == WeightFormat::kFP4) {
      b = static_cast<uint8_t>(scale[static_cast<size_t>(row * blocks + block)]);
    }
    return std::ldexp(1.F, b - 127);
  }
};

// Rows of activations: bf16 on a coarse grid (AQ8-like), or f32.
struct Rows {
  int64_t k, stride;
  std::vector<uint16_t> bf16;
  std::vector<float> f32;
  Rows(int64_t n, int64_t columns, Random& random) : k(columns), stride(columns + 3) {
    for (int64_t i = 0; i < n * stride; ++i) {
      f32.push_back(random.uniform() * 3);
      bf16.push_back(to_bf16(f32.back()));
    }
  }
  const void* data(WeightFormat f) const {
    return f == WeightFormat::kF32 ? static_cast<const void*>(f32.data()) : bf16.data();
  }
  float at(WeightFormat f, int64_t row, int64_t col) const {
    const auto i = static_cast<size_t>(row * stride + col);
    return f == WeightFormat::kF32 ? f32[i] : from_bf16(bf16[i]);
  }
};

// The contract of linear.h, word for word.
float contract(const Matrix& w, int64_t n, const Rows& x, int64_t row) {
  float acc = 0;
  for (int64_t b = 0; b < (w.k + 31) / 32; ++b) {
    float s = 0;
    for (int64_t p = 0; p < 16; ++p) {
      for (int64_t odd = 1; odd >= 0; --odd) {
        const int64_t k = 32 * b + 2 * p + odd;
        const float xv = k < w.k ? x.at(w.format, row, k) : 0;
        const float wv = k < w.k ? w.element(n, k) : 0;
        if (w.format == WeightFormat::kF32) {
          const float product = xv * wv;
          s = s + product;
        } else {
          s = std::fma(xv, wv, s);
        }
      }
    }
    acc = std::fma(w.scale_of(n, b), s, acc);
  }
  return acc;
}

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kFP8,
                                     WeightFormat::kFP4};

// Every program that this machine runs.
struct Program {
  std::string name;
  LinearKernels kernels;
};
std::vector<Program> programs() {
  std::vector<Program> all;
  for (const CpuLevel level : supported_levels()) {
    for (const LinearKernels& kernels : linear_programs(level)) {
      all.push_back({fmt::format("{} {}", level_name(level), all.size()), kernels});
    }
  }
  return all;
}

std::vector<std::byte> scratch() {
  return std::vector<std::byte>(static_cast<size_t>(linear_scratch_bytes()));
}

// A matrix in both orders.
class Packed {
 public:
  explicit Packed(const Matrix& m) {
    for (PackedLinear& p : orders_) {
      p = PackedLinear(m.format, static_cast<PackOrder>(&p - orders_), m.n, m.k);
      p.pack(0, 0, m.source(), 0, (m.n + 15) / 16);
    }
  }
  const PackedLinear* of(const Program& program) const {
    return &orders_[static_cast<int>(program.kernels.order)];
  }

 private:
  PackedLinear orders_[2];
};

// The first `rows` rows of x times all `n` rows of w.
std::vector<float> products(const Program& program, const Packed& w, const void* x,
                            int64_t x_stride, int rows, int64_t n) {
  std::vector<float> y(static_cast<size_t>(rows * n), NAN);
  auto temp = scratch();
  const RowGroup all{0, 0, rows};
  const LinearCall call{.weights = w.of(program),
                        .x = x,
                        .x_stride = x_stride,
                        .y = y.data(),
                        .y_stride = n,
                        .y_type = OutputType::kF32,
                        .groups = {&all, 1}};
  linear(program.kernels, call, {0, linear_units(call)}, temp.data());
  return y;
}

TEST(Linear, EveryLevelAndRowCountGivesTheBitsOfTheContract) {
  Random random(1);
  for (const WeightFormat format : kFormats) {
    for (const auto& [n, k] : {std::pair{48, 160}, {37, 131}, {16, 32}, {1, 1}, {131, 417}}) {
      const Matrix m(format, n, k, random);
      const Packed w(m);
      const Rows x(65, k, random);
      std::vector<float> expected;
      for (int64_t r = 0; r < 65; ++r) {
        for (int64_t c = 0; c < n; ++c) expected.push_back(contract(m, c, x, r));
      }
      for (const Program& program : programs()) {
        for (const int rows : {1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65}) {
          const auto y = products(program, w, x.data(format), x.stride, rows, n);
          ASSERT_EQ(0, std::memcmp(y.data(), expected.data(), y.size() * 4))
              << program.name << " format " << static_cast<int>(format) << " n " << n << " k " << k
              << " rows " << rows;
        }
      }
    }
  }
}

// A block of 32 activations of one of the kinds that kernels may treat apart.
void fill_block(int64_t kind, Random& random, uint16_t* x) {
  const float scale = std::ldexp(1.F, static_cast<int>(random.below(60)) - 30);
  for (int i = 0; i < 32; ++i) {
    const auto code = static_cast<uint8_t>(random.next());
    const float normal = random.uniform() + random.uniform() + random.uniform();
    float value = 0;
    switch (kind) {
      case 0:  // nothing
        break;
      case 1:  // E4M3 of any magnitude
        value = (code & 127) == 127 ? 448.F : e4m3(code);
        break;
      case 2:  // E4M3 near the largest, then the smallest: sums that f32 must round
        value = i >= 28 ? e4m3(1) : e4m3(static_cast<uint8_t>(0x70 | (code & 13)));
        break;
      case 3:  // one large, the others subnormal
        value = i == 5 ? 448.F : e4m3(code & 0x87);
        break;
      case 4:  // all bits of bf16
        value = normal;
        break;
      case 5:  // the integers around the largest of 14 bits, with an odd one
        value = i == 0 ? 1.F : i == 1 ? 16320.F : static_cast<float>(16256 * (code & 1));
        break;
      default:  // sums of all that is largest
        value = (code & 128) != 0 ? -448.F : 448.F;
    }
    x[i] = to_bf16(value * scale);
  }
  if (kind == 7) {  // of any exponent
    for (int i = 0; i < 32; ++i) x[i] = static_cast<uint16_t>((random.next() & 0xBFFF) | 0x2000);
  }
}

TEST(Linear, BlocksOfActivationsOfEveryKindGiveTheBitsOfTheContract) {
  Random random(6);
  const int64_t n = 37, k = 32 * 40 - 5;
  for (const WeightFormat format : {WeightFormat::kFP4, WeightFormat::kFP8}) {
    Matrix m(format, n, k, random);
    // In a row of its own: the largest weights, then the smallest.
    const bool fp4 = format == WeightFormat::kFP4;
    for (int64_t i = 0; i < source_weight_bytes(format, 1, k); ++i) {
      const bool small = fp4 ? i % 16 >= 14 : i % 32 >= 28;
      m.weight[static_cast<size_t>(i)] = std::byte(fp4 ? (small ? 0x11 : 0x77) : small ? 1 : 0x7E);
    }
    const Packed w(m);
    // Without the last kind, rows hold nothing that leaves the range that kernels may scale.
    for (const int64_t n_kinds : {8, 7}) {
      Rows x(9, k, random);
      for (int64_t r = 0; r < 9; ++r) {
        for (int64_t b = 0; b < 39; ++b) {
          fill_block(random.below(n_kinds), random, x.bf16.data() + r * x.stride + 32 * b);
        }
      }
      std::vector<float> expected;
      for (int64_t r = 0; r < 9; ++r) {
        for (int64_t c = 0; c < n; ++c) expected.push_back(contract(m, c, x, r));
      }
      for (const Program& program : programs()) {
        for (const int rows : {1, 2, 9}) {
          const auto y = products(program, w, x.bf16.data(), x.stride, rows, n);
          for (size_t i = 0; i < y.size(); ++i) {
            ASSERT_EQ(y[i], expected[i]) << program.name << " row " << i / n << " column " << i % n;
          }
        }
      }
    }
  }
}

TEST(Linear, EveryElementCodeIsDecodedExactly) {
  // Row r of the matrix is all code r; x picks one element with weight 1.
  for (const WeightFormat format : {WeightFormat::kFP8, WeightFormat::kFP4}) {
    const int codes = format == WeightFormat::kFP8 ? 256 : 16;
    Random random(2);
    Matrix m(format, codes, 32, random);
    const int64_t row_bytes = source_weight_bytes(format, 1, 32);
    for (int code = 0; code < codes; ++code) {
      std::memset(m.weight.data() + code * row_bytes,
                  format == WeightFormat::kFP8 ? code : code * 17, static_cast<size_t>(row_bytes));
    }
    for (std::byte& b : m.scale) b = std::byte{127};
    const Packed w(m);
    auto temp = scratch();
    for (const Program& program : programs()) {
      for (int64_t rows : {1, 3}) {
        for (int64_t at = 0; at < 32; ++at) {
          std::vector<uint16_t> x(static_cast<size_t>(32 * rows), 0);
          for (int64_t r = 0; r < rows; ++r) x[static_cast<size_t>(32 * r + at)] = to_bf16(1);
          std::vector<float> y(static_cast<size_t>(codes * rows));
          const RowGroup all{0, 0, static_cast<int32_t>(rows)};
          const LinearCall call{.weights = w.of(program),
                                .x = x.data(),
                                .x_stride = 32,
                                .y = y.data(),
                                .y_stride = codes,
                                .y_type = OutputType::kF32,
                                .groups = {&all, 1}};
          linear(program.kernels, call, {0, linear_units(call)}, temp.data());
          for (int code = 0; code < codes; ++code) {
            if (format == WeightFormat::kFP8 && code % 128 == 127)
              continue;  // NaN: refused at load
            ASSERT_EQ(y[static_cast<size_t>(code)], m.element(code, at))
                << program.name << " code " << code << " at " << at;
          }
        }
      }
    }
  }
}

TEST(Linear, ExtremeScalesAreExact) {
  Random random(3);
  for (const WeightFormat format : {WeightFormat::kFP8, WeightFormat::kFP4}) {
    for (const int exponent : {0, 1, 20, 234}) {
      Matrix m(format, 16, 32, random);
      std::memset(m.scale.data(), exponent, m.scale.size());
      const Packed w(m);
      const Rows x(3, 32, random);
      auto temp = scratch();
      for (const Program& program : programs()) {
        std::vector<float> y(3 * 16);
        const RowGroup all{0, 0, 3};
        const LinearCall call{.weights = w.of(program),
                              .x = x.data(format),
                              .x_stride = x.stride,
                              .y = y.data(),
                              .y_stride = 16,
                              .y_type = OutputType::kF32,
                              .groups = {&all, 1}};
        linear(program.kernels, call, {0, linear_units(call)}, temp.data());
        for (int64_t r = 0; r < 3; ++r) {
          for (int64_t c = 0; c < 16; ++c) {
            ASSERT_EQ(y[static_cast<size_t>(r * 16 + c)], contract(m, c, x, r))
                << program.name << " scale byte " << exponent;
          }
        }
      }
    }
  }
}

// Four experts, each a stack of two pieces of odd size; rows gathered, results scattered.
TEST(Linear, GroupsStackPiecesAndGatherAndScatterRows) {
  Random random(4);
  const int64_t k = 96, n1 = 21, n2 = 40, n_experts = 4;
  for (const WeightFormat format : kFormats) {
    const int64_t pieces[] = {n1, n2};
    PackedLinear orders[] = {{format, PackOrder::kPairs, n_experts, pieces, k},
                             {format, PackOrder::kRows, n_experts, pieces, k}};
    std::vector<Matrix> m1, m2;
    for (int64_t e = 0; e < n_experts; ++e) {
      m1.emplace_back(format, n1, k, random);
      m2.emplace_back(format, n2, k, random);
      for (PackedLinear& w : orders) {
        w.pack(e, 0, m1.back().source(), 0, 2);
        w.pack(e, 1, m2.back().source(), 0, 3);
      }
    }
    ASSERT_EQ(orders[0].piece_column(1), 32);
    ASSERT_EQ(orders[0].n(), 72);
    const Rows x(5, k, random);
    const std::vector<int32_t> x_index{4, 0, 2, 2, 1, 3, 0};
    const std::vector<int32_t> y_index{6, 5, 4, 3, 2, 1, 0};
    const std::vector<RowGroup> groups{{2, 0, 3}, {0, 3, 1}, {1, 4, 0}, {3, 4, 3}};
    for (const int n_threads : {1, 2, 3}) {
      ThreadPool pool({.n_threads = n_threads});
      for (const Program& program : programs()) {
        std::vector<uint16_t> y(7 * 80, 0x7FFF);
        const PackedLinear& w = orders[static_cast<int>(program.kernels.order)];
        const LinearCall call{.weights = &w,
                              .x = x.data(format),
                              .x_stride = x.stride,
                              .x_index = x_index.data(),
                              .y = y.data(),
                              .y_index = y_index.data(),
                              .y_stride = 80,
                              .groups = groups};
        linear(program.kernels, call, pool);
        for (const RowGroup& g : groups) {
          for (int32_t i = g.first; i < g.first + g.count; ++i) {
            const uint16_t* row = y.data() + 80 * y_index[static_cast<size_t>(i)];
            for (int64_t c = 0; c < 80; ++c) {
              const auto e = static_cast<size_t>(g.group);
              const int64_t xr = x_index[static_cast<size_t>(i)];
              const uint16_t expected = c < n1   ? to_bf16(contract(m1[e], c, x, xr))
                                        : c < 32 ? 0
                                        : c < 72 ? to_bf16(contract(m2[e], c - 32, x, xr))
                                                 : 0x7FFF;
              ASSERT_EQ(row[c], expected) << program.name << " entry " << i << " column " << c;
            }
          }
        }
      }
    }
  }
}

TEST(Linear, SharesCoverAllUnitsOnceAndWeighRows) {
  PackedLinear w(WeightFormat::kFP4, PackOrder::kPairs, 3, std::vector<int64_t>{160}, 32);
  const std::vector<RowGroup> groups{{0, 0, 1}, {1, 1, 0}, {2, 1, 200}};
  uint16_t dummy = 0;
  const LinearCall call{.weights = &w, .x = &dummy, .y = &dummy, .groups = groups};
  for (const Program& program : programs()) {
    for (const int lanes : {1, 2, 3, 7, 64}) {
      int64_t at = 0;
      for (int i = 0; i < lanes; ++i) {
        const Range r = linear_share(program.kernels, call, Lane{.index = i, .count = lanes});
        EXPECT_EQ(r.begin, at);
        EXPECT_GE(r.end, r.begin);
        at = r.end;
      }
      EXPECT_EQ(at, 30);
    }
    EXPECT_GE(linear_share(program.kernels, call, Lane{.index = 0, .count = 2}).end, 24);
  }
}

TEST(CpuLevel, UnknownAndUnsupportedNamesAreRefusedWithTheList) {
  EXPECT_EQ(choose_level("best").value(), supported_levels().back());
  EXPECT_EQ(choose_level("base").value(), CpuLevel::kBase);
  const auto wrong = choose_level("avx9");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("base"), std::string::npos);
}

}  // namespace
}  // namespace hadal::cpu
