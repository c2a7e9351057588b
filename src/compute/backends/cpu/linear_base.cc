#include <cstdint>

#include "compute/backends/cpu/linear_job.h"
#include "compute/backends/cpu/linear_shape.h"

namespace hadal::cpu::level_base {
namespace {

constexpr bool kTileDot = false;

// Four quarters of 4 rows: one SSE or NEON register each. (Left to the loop vectoriser of GCC 12,
// plain arrays came out wrong at -O3: even and odd words of a pair were mixed up.)
typedef float Quarter __attribute__((vector_size(16)));
typedef uint32_t QuarterBits __attribute__((vector_size(16)));
struct Vec {
  Quarter q[4];
};
struct Pair {
  Vec even, odd;
};

#define HADAL_BASE inline __attribute__((always_inline))

HADAL_BASE Vec vec_set1(float x) {
  const Quarter q{x, x, x, x};
  return {{q, q, q, q}};
}
HADAL_BASE Vec vec_zero() {
  return vec_set1(0.f);
}
HADAL_BASE Vec vec_load(const float* from) {
  Vec a;
  __builtin_memcpy(&a, from, 64);
  return a;
}
HADAL_BASE void vec_store(float* to, Vec a) {
  __builtin_memcpy(to, &a, 64);
}
HADAL_BASE Vec vec_add(Vec a, Vec b) {
  return {{a.q[0] + b.q[0], a.q[1] + b.q[1], a.q[2] + b.q[2], a.q[3] + b.q[3]}};
}
HADAL_BASE Vec vec_mul(Vec a, Vec b) {
  return {{a.q[0] * b.q[0], a.q[1] * b.q[1], a.q[2] * b.q[2], a.q[3] * b.q[3]}};
}
// Products here are exact in f32 (two bf16 numbers; a power of two), so this is a fused step.
HADAL_BASE Vec vec_fma(Vec a, Vec b, Vec c) {
  return vec_add(vec_mul(a, b), c);
}
HADAL_BASE Vec pair_even(const Pair& w) {
  return w.even;
}
HADAL_BASE Vec pair_odd(const Pair& w) {
  return w.odd;
}

HADAL_BASE float as_float(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
HADAL_BASE float from_bf16(uint32_t bits) {
  return as_float(bits << 16);
}
HADAL_BASE void widen(const uint16_t* x, float* to) {
  for (int i = 0; i < 32; ++i) to[i] = from_bf16(x[i]);
}

// 2^-127, the value of byte 0, is the subnormal 0x00400000.
HADAL_BASE float scale_value(uint32_t byte) {
  return as_float(byte == 0 ? 0x00400000u : byte << 23);
}
HADAL_BASE Vec scale_row(uint8_t byte) {
  return vec_set1(scale_value(byte));
}
HADAL_BASE Vec scale_rows(const unsigned char* bytes) {
  float a[16];
  for (int r = 0; r < 16; ++r) a[r] = scale_value(bytes[r]);
  return vec_load(a);
}

constexpr float kE2m1[16] = {0.f,  .5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                             -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

struct E4m3Table {
  float value[256];
};
constexpr E4m3Table make_e4m3() {
  E4m3Table table{};
  for (int b = 0; b < 256; ++b) {
    const int exponent = (b >> 3) & 15;
    const int mantissa = b & 7;
    // In units of 2^-9: the subnormals' step, doubled for every exponent above 1.
    float magnitude = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) / 512.f;
    for (int e = 1; e < exponent; ++e) magnitude *= 2.f;
    table.value[b] = b < 128 ? magnitude : -magnitude;
  }
  return table;
}
constexpr E4m3Table kE4m3 = make_e4m3();

HADAL_BASE uint32_t dword(const unsigned char* at) {
  uint32_t w;
  __builtin_memcpy(&w, at, 4);
  return w;
}

template <typename Use>
HADAL_BASE void line_pairs_fp4(const unsigned char* line, const Use& use) {
  for (int i = 0; i < 4; ++i) {
    float even[16], odd[16];
    for (int r = 0; r < 16; ++r) {
      const uint32_t codes = dword(line + 4 * r) >> (4 * i);
      even[r] = kE2m1[codes & 15];
      odd[r] = kE2m1[(codes >> 16) & 15];
    }
    use(i, Pair{vec_load(even), vec_load(odd)});
  }
}

template <typename Use>
HADAL_BASE void line_pairs_fp8(const unsigned char* line, const Use& use) {
  for (int i = 0; i < 2; ++i) {
    const unsigned char* const at = line + 8 * i;
    float even[16], odd[16];
    for (int r = 0; r < 16; ++r) {
      even[r] = kE4m3.value[at[r / 4 * 16 + r % 4 * 2]];
      odd[r] = kE4m3.value[at[r / 4 * 16 + r % 4 * 2 + 1]];
    }
    use(i, Pair{vec_load(even), vec_load(odd)});
  }
}

template <typename Use>
HADAL_BASE void line_pairs_bf16(const unsigned char* line, const Use& use) {
  Pair w;
  for (int i = 0; i < 4; ++i) {
    QuarterBits bits;
    __builtin_memcpy(&bits, line + 16 * i, 16);
    w.even.q[i] = reinterpret_cast<Quarter>(bits << 16);
    w.odd.q[i] = reinterpret_cast<Quarter>(bits & 0xFFFF0000u);
  }
  use(0, w);
}

// Never used: products go through f32 here.
constexpr bool kFloatsFp4 = false;
template <typename Use>
HADAL_BASE void line_floats_fp4(const unsigned char*, const Use&) {}
HADAL_BASE void pair_store(unsigned char*, const Pair&) {}
HADAL_BASE Pair pair_load(const unsigned char*) {
  return Pair{};
}
HADAL_BASE Vec pair_dot(Vec s, const uint16_t*, const Pair&) {
  return s;
}
HADAL_BASE void vec_keep(Vec&) {}
constexpr int kPeakSums = 4;
struct Codes {
  static constexpr bool kUsed = false;
};
struct Digits {
  static constexpr bool kUsed = false;
};
constexpr int kRowPanels[] = {0, 1, 1, 0, 1, 0, 0, 0, 0};
constexpr int kMicroPanels = 1;
constexpr int kMicroRows = 2;

#include "compute/backends/cpu/linear_body.inc"

}  // namespace

void run(const PanelJob& job) {
  run_panels(job);
}

double peak(int64_t turns, float* sink) {
  return run_peak(turns, sink);
}

}  // namespace hadal::cpu::level_base
