#include "compute/weights/random_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/core/philox.h"

// Values are drawn by table: a random byte or pair of bytes picks a quantile of the normal
// distribution, already encoded. One spread of block scales (a factor 1/2, 1 or 2) lies on top.
// The gains keep activations of order one and let router, index and attention scores really spread;
// expert 0 and the shared expert are wide enough to reach the clamp of SwiGLU, and their way back
// is narrow.

namespace hadal::weights {
namespace {

struct Stream {
  std::array<uint32_t, 2> key;

  Stream(uint64_t seed, std::string_view name) : key{} {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    const auto mixed =
        core::philox4x32({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32),
                          static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                         {0x68616461u, 0x6c});
    key = {mixed[0], mixed[1]};
  }

  // Blocks first, first + 1, ... of 16 bytes, transposed in groups of 16 so that the compiler uses
  // vectors. out.size() is a multiple of 64.
  void fill(uint64_t first, std::span<uint32_t> out) const {
    constexpr size_t kLanes = 16;
    for (size_t at = 0; at < out.size(); at += 4 * kLanes) {
      uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
      for (size_t i = 0; i < kLanes; ++i) {
        const uint64_t n = first + at / 4 + i;
        c0[i] = static_cast<uint32_t>(n);
        c1[i] = static_cast<uint32_t>(n >> 32);
        c2[i] = c3[i] = 0;
      }
      uint32_t k0 = key[0], k1 = key[1];
      for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        for (size_t i = 0; i < kLanes; ++i) {
          const uint64_t p0 = uint64_t{0xD2511F53u} * c0[i];
          const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2[i];
          c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
          c1[i] = static_cast<uint32_t>(p1);
          c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
          c3[i] = static_cast<uint32_t>(p0);
        }
      }
      std::memcpy(out.data() + at, c0, sizeof c0);
      std::memcpy(out.data() + at + kLanes, c1, sizeof c1);
      std::memcpy(out.data() + at + 2 * kLanes, c2, sizeof c2);
      std::memcpy(out.data() + at + 3 * kLanes, c3, sizeof c3);
    }
  }
};

// Inverse of the normal distribution function by bisection on erfc: 65,536 values, made once.
const std::vector<float>& normal_quantiles() {
  static const std::vector<float> table = [] {
    std::vector<float> made(65536);
    double x = -5;
    for (size_t i = 0; i < 32768; ++i) {
      const double p = (static_cast<double>(i) + 0.5) / 65536;
      for (int step = 0; step < 60; ++step) {  // Newton; the start is the neighbour's answer
        const double f = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
        const double slope = std::exp(-0.5 * x * x) / std::sqrt(2 * 3.14159265358979323846);
        const double move = std::clamp(f / slope, -0.5, 0.5);
        x -= move;
        if (std::fabs(move) < 1e-12) break;
      }
      made[i] = static_cast<float>(x);
      made[65535 - i] = static_cast<float>(-x);
    }
    return made;
  }();
  return table;
}

uint16_t to_bf16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}

// The code of the nearest of `n` ascending magnitudes, with the sign at bit `sign_bit`.
template <size_t n>
uint8_t nearest_code(const std::array<float, n>& grid, float x, int sign_bit) {
  const float a = std::fabs(x);
  size_t best = 0;
  while (best + 1 < n && a > (grid[best] + grid[best + 1]) / 2) ++best;
  return static_cast<uint8_t>(best | (static_cast<size_t>(std::signbit(x)) << sign_bit));
}

const std::array<float, 127>& e4m3_grid() {
  static const std::array<float, 127> grid = [] {
    std::array<float, 127> made{};
    for (int code = 0; code < 127; ++code) {
      const int e = code >> 3, m = code & 7;
      made[static_cast<size_t>(code)] = e == 0 ? std::ldexp(static_cast<float>(m), -9)
                                               : std::ldexp(8.0f + static_cast<float>(m), e - 10);
    }
    return made;
  }();
  return grid;
}
constexpr std::array<float, 8> kE2m1Grid = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

bool ends_with(std::string_view text, std::string_view end) {
  return text.ends_with(end);
}

std::string_view leaf_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// Standard deviation of a linear's output for an input of deviation one.
double gain(std::string_view name) {
  const std::string_view linear = name.substr(0, name.rfind('.'));
  const std::string_view leaf = leaf_of(linear);
  const bool shared = name.find("shared_experts") != std::string_view::npos;
  const bool wide = shared || name.find(".experts.0.") != std::string_view::npos;
  if (name.find(".ffn.") != std::string_view::npos) {
    if (leaf == "w1" || leaf == "w3") return wide ? 4.5 : 1.0;
    if (leaf == "w2") return shared ? 0.022 : wide ? 0.018 : 0.45;
    if (leaf == "gate") return 2.0;
  }
  if (leaf == "wo_a") return 1.4;
  if (leaf == "main_proj") return 0.6;
  if (leaf == "head") return 3.0;
  return 1.0;
}

constexpr double kScaleSpread = 1.3228756555322954;  // rms of 1/2, 1, 2

// A quantised matrix is code * 2^exponent with codes of deviation `sigma`, which lies in
// [lowest, 2 * lowest).
struct BlockScale {
  int exponent;
  float sigma;
};
BlockScale block_scale(std::string_view name, int64_t n_inputs, double lowest) {
  const bool table = name.find("engram.embed.") != std::string_view::npos;
  const double std = table ? 1.0 : gain(name) / std::sqrt(static_cast<double>(n_inputs));
  const double want = std / kScaleSpread;
  const int exponent = static_cast<int>(std::floor(std::log2(want / lowest)));
  return {exponent, static_cast<float>(std::ldexp(want, -exponent))};
}
constexpr double kE4m3Sigma = 64, kE2m1Sigma = 1;

// Codes of a quantised tensor by random byte.
using CodeTable = std::array<uint8_t, 256>;
CodeTable code_table(const ExpectedTensor& t) {
  CodeTable table{};
  if (t.type != StoredType::kE4m3 && t.type != StoredType::kI8) return table;
  const bool fp4 = t.type == StoredType::kI8;
  const BlockScale scale =
      block_scale(t.name, t.shape.back() * (fp4 ? 2 : 1), fp4 ? kE2m1Sigma : kE4m3Sigma);
  for (size_t i = 0; i < 256; ++i) {
    const float x = normal_quantiles()[i * 256 + 128] * scale.sigma;
    table[i] = fp4 ? nearest_code(kE2m1Grid, x, 3) : nearest_code(e4m3_grid(), x, 7);
  }
  return table;
}

void fill_e4m3(const CodeTable& table, std::span<const uint32_t> random, std::span<std::byte> out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(random.data());
  for (size_t i = 0; i < out.size(); ++i) out[i] = std::byte{table[bytes[i]]};
}

// Two random bytes for the two codes of a byte.
void fill_e2m1(const CodeTable& table, std::span<const uint32_t> random, std::span<std::byte> out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(random.data());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(table[bytes[2 * i]] | (table[bytes[2 * i + 1]] << 4));
}

void fill_e8m0(const ExpectedTensor& t, bool fp4, std::span<const uint32_t> random,
               std::span<std::byte> out) {
  const int64_t n_inputs = t.shape.back() * 32;
  const BlockScale scale = block_scale(t.name, n_inputs, fp4 ? kE2m1Sigma : kE4m3Sigma);
  const auto* bytes = reinterpret_cast<const uint8_t*>(random.data());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(scale.exponent + 127 + (bytes[i] * 3 >> 8) - 1);
}

// Each stream keeps to itself but for the factor `kCoupling`: stream 0 carries the token and feeds
// the sites, the others collect their outputs and reach the head. A rounding difference then fades
// from layer to layer instead of growing, so that two correct programs agree on such a checkpoint.
constexpr double kCoupling = 3e-4;

float hc_base(const ModelConfig& c, std::string_view name, int64_t i, float n) {
  const int64_t hc = c.hc_mult;
  const bool last = name == "layers." + std::to_string(c.n_layers - 1) + ".hc_ffn_base" ||
                    name == "mtp." + std::to_string(c.draft.n_layers - 1) + ".hc_ffn_base";
  if (i < hc) {
    if (last) return (i == 0 ? -2.0f : 0.5f) + 0.6f * n;
    return (i == 0 ? 16.0f : static_cast<float>(std::log(kCoupling))) + 0.4f * n;
  }
  if (i < 2 * hc) return i == hc && hc > 1 ? -16.0f : 0.7f * n;
  const int64_t row = (i - 2 * hc) / hc, column = (i - 2 * hc) % hc;
  return 1.2f * n - ((row == 0) != (column == 0) ? 12.0f : 0.0f);
}

// value = mean + deviation * n, for the tensors that are all alike.
struct Normal {
  float mean, deviation;
};
Normal normal_of(const ExpectedTensor& t) {
  const std::string_view name = t.name, last = leaf_of(name);
  const auto fan_in = static_cast<float>(t.shape.back());
  if (ends_with(last, "_fn")) return {0, 1 / std::sqrt(fan_in)};
  if (last == "attn_sink") return {3, 1};
  if (last == "bias" || last == "bias_vl")
    return {0, name.find(".ffn.gate.") != std::string_view::npos ? 0.4f : 0.3f};
  if (name == "embed.weight" || name.starts_with("image_") ||
      name.find("markov_head.embed") != std::string_view::npos) {
    return {0, 1};
  }
  if (name.find("norm") != std::string_view::npos) return {1, 0.3f};
  return {0, static_cast<float>(gain(name)) / std::sqrt(fan_in)};
}

// Head rows of ids that would end or confuse a generation are small: they never win.
float head_factor(const ModelConfig& c, int64_t row) {
  const bool quiet = row == c.bos_token || row == c.eos_token || row == c.pad_token ||
                     row == c.image_token || (c.draft.n_layers > 0 && row == c.draft.noise_token);
  return quiet ? 0.02f : 1.0f;
}

void fill_plain(const RandomSource& source, const ExpectedTensor& t, uint64_t first,
                std::span<const uint32_t> random, std::span<std::byte> out) {
  const auto width = static_cast<size_t>(stored_type_bytes(t.type));
  const size_t n = out.size() / width;
  const std::vector<float>& quantiles = normal_quantiles();
  const auto* draws = reinterpret_cast<const uint16_t*>(random.data());
  const std::string_view last = leaf_of(t.name);
  const bool base = ends_with(last, "_base"), scale = ends_with(last, "_scale");
  const bool sign = last == "q_weight" || last == "k_weight";
  const bool head = t.name == "head.weight";
  const Normal normal = sign ? Normal{1, 0.4f} : normal_of(t);
  for (size_t i = 0; i < n; ++i) {
    const float z = quantiles[draws[i]];
    float value = normal.mean + normal.deviation * z;
    const auto at = static_cast<int64_t>(first + i);
    if (base) value = hc_base(*source.config, t.name, at, z);
    if (scale) value = 0.6f + 0.6f * static_cast<float>(draws[i]) / 65536.0f;
    if (sign && draws[i] % 10 == 0) value = -value;
    if (head) value *= head_factor(*source.config, at / t.shape.back());
    if (width == 2) {
      const uint16_t bits = to_bf16(value);
      std::memcpy(out.data() + 2 * i, &bits, 2);
    } else {
      std::memcpy(out.data() + 4 * i, &value, 4);
    }
  }
}

// Random bytes that one stored byte of a type consumes, times 2.
uint64_t draw_halves(StoredType type) {
  switch (type) {
    case StoredType::kI8:
      return 4;
    case StoredType::kF32:
      return 1;
    default:
      return 2;
  }
}

}  // namespace

void random_bytes(const RandomSource& source, const ExpectedTensor& tensor, uint64_t begin,
                  std::span<std::byte> out) {
  HADAL_CHECK(begin % kRandomPiece == 0, "pieces start at multiples of kRandomPiece");
  const Stream stream(source.seed, tensor.name);
  const uint64_t halves = draw_halves(tensor.type);
  const bool fp4 = tensor.name.find(".ffn.experts.") != std::string::npos;
  const CodeTable table = code_table(tensor);
  std::array<uint32_t, kRandomPiece / 2> random;
  for (size_t done = 0; done < out.size(); done += kRandomPiece) {
    const uint64_t place = begin + done;
    const std::span<std::byte> piece =
        out.subspan(done, std::min<size_t>(kRandomPiece, out.size() - done));
    const std::span<uint32_t> draws(random.data(), kRandomPiece / 8 * halves);
    stream.fill(place * halves / 32, draws);
    switch (tensor.type) {
      case StoredType::kE4m3:
        fill_e4m3(table, draws, piece);
        break;
      case StoredType::kI8:
        fill_e2m1(table, draws, piece);
        break;
      case StoredType::kE8m0:
        fill_e8m0(tensor, fp4, draws, piece);
        break;
      default:
        fill_plain(source, tensor, place / static_cast<uint64_t>(stored_type_bytes(tensor.type)),
                   draws, piece);
    }
  }
}

}  // namespace hadal::weights
