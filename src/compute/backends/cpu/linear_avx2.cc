#include <cstdint>

#include <immintrin.h>

#include "compute/backends/cpu/linear_job.h"
#include "compute/backends/cpu/linear_shape.h"

namespace hadal::cpu::level_avx2 {
namespace {

constexpr bool kTileDot = false;

#define HADAL_YMM inline __attribute__((always_inline))

// Rows 0-7 and 8-15.
struct Vec {
  __m256 lo, hi;
};
struct Pair {
  __m256i lo, hi;
};

HADAL_YMM Vec vec_zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
HADAL_YMM Vec vec_set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
HADAL_YMM Vec vec_load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
HADAL_YMM void vec_store(float* to, Vec a) {
  _mm256_storeu_ps(to, a.lo);
  _mm256_storeu_ps(to + 8, a.hi);
}
HADAL_YMM Vec vec_add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
HADAL_YMM Vec vec_mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
// By name, so that the sum is what is overwritten: left to GCC 12 it is often the weight, and then
// sums move between registers and memory.
HADAL_YMM Vec vec_fma(Vec a, Vec b, Vec c) {
  __asm__("vfmadd231ps %2, %1, %0" : "+x"(c.lo) : "x"(a.lo), "x"(b.lo));
  __asm__("vfmadd231ps %2, %1, %0" : "+x"(c.hi) : "x"(a.hi), "x"(b.hi));
  return c;
}
HADAL_YMM __m256 even(__m256i w) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
HADAL_YMM __m256 odd(__m256i w) {
  return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(-0x10000)));
}
HADAL_YMM Vec pair_even(Pair w) {
  return {even(w.lo), even(w.hi)};
}
HADAL_YMM Vec pair_odd(Pair w) {
  return {odd(w.lo), odd(w.hi)};
}
HADAL_YMM void pair_store(unsigned char* to, Pair w) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), w.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), w.hi);
}
HADAL_YMM __m256i load_codes(const unsigned char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
HADAL_YMM Pair pair_load(const unsigned char* from) {
  return {load_codes(from), load_codes(from + 32)};
}
HADAL_YMM Vec pair_dot(Vec s, const uint16_t*, Pair) {  // never used: kTileDot is false
  return s;
}
HADAL_YMM void vec_keep(Vec& a) {
  __asm__("" : "+x"(a.lo), "+x"(a.hi));
}
HADAL_YMM void widen(const uint16_t* x, float* to) {
  for (int i = 0; i < 32; i += 8) {
    const __m256i v =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)));
    _mm256_storeu_ps(to + i, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
  }
}

// Byte 0 is 2^-127, the subnormal 0x00400000; every other byte is an exponent field. No branch:
// behind one GCC 12 keeps the sums of tile_rows in memory.
HADAL_YMM __m256 scale_of(__m256i bytes) {
  return _mm256_castsi256_ps(
      _mm256_max_epu32(_mm256_slli_epi32(bytes, 23), _mm256_set1_epi32(0x00400000)));
}
HADAL_YMM Vec scale_row(uint8_t byte) {
  const __m256 scale = scale_of(_mm256_set1_epi32(byte));
  return {scale, scale};
}
HADAL_YMM __m256 scale_8(const unsigned char* bytes) {
  return scale_of(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
}
HADAL_YMM Vec scale_rows(const unsigned char* bytes) {
  return {scale_8(bytes), scale_8(bytes + 8)};
}

// linear_codes.inc.
struct Codes {
  static constexpr bool kUsed = true;
  HADAL_YMM static __m256 half(const unsigned char* from, int k) {
    const __m256i codes = load_codes(from + k - 3);
    const __m256i bits = _mm256_set1_epi32(-0x78100000);  // 0x87F00000
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_srai_epi32(codes, 4), bits));
  }
  HADAL_YMM static Vec load(const unsigned char* line, int k) {
    return {half(line, k), half(line + 32, k)};
  }
};

template <typename Use>
HADAL_YMM void line_pairs_bf16(const unsigned char* line, const Use& use) {
  use(0, pair_load(line));
}

HADAL_YMM __m256i low_codes(__m256i codes) {
  return _mm256_and_si256(codes, _mm256_set1_epi8(15));
}
HADAL_YMM __m256i high_codes(__m256i codes) {
  return _mm256_and_si256(_mm256_srli_epi16(codes, 4), _mm256_set1_epi8(15));
}
// Half of the integers in byte J of each dword.
template <int J>
HADAL_YMM __m256 byte_floats(__m256i twice) {
  const __m256i wide = _mm256_srai_epi32(_mm256_slli_epi32(twice, 24 - 8 * J), 24);
  return _mm256_mul_ps(_mm256_set1_ps(0.5f), _mm256_cvtepi32_ps(wide));
}
// use(k, 8 weights) for the k of a half line, the odd one of a pair first.
template <typename Use>
HADAL_YMM void half_line_floats_fp4(const unsigned char* from, const Use& use) {
  const __m256i twice = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
  const __m256i codes = load_codes(from);
  const __m256i low = _mm256_shuffle_epi8(twice, low_codes(codes));
  const __m256i high = _mm256_shuffle_epi8(twice, high_codes(codes));
  use(1, byte_floats<1>(low));
  use(0, byte_floats<0>(low));
  use(3, byte_floats<3>(low));
  use(2, byte_floats<2>(low));
  use(5, byte_floats<1>(high));
  use(4, byte_floats<0>(high));
  use(7, byte_floats<3>(high));
  use(6, byte_floats<2>(high));
}
constexpr bool kFloatsFp4 = true;
template <typename Use>
HADAL_YMM void line_floats_fp4(const unsigned char* line, const Use& use) {
  __m256 low[8];
  half_line_floats_fp4(line, [&](int k, __m256 w) { low[k] = w; });
  half_line_floats_fp4(line + 32, [&](int k, __m256 w) { use(k, Vec{low[k], w}); });
}

// FP4 times rows of at most kFewRowsK elements (linear_digits.inc).
struct Digits {
  static constexpr bool kUsed = true;
  static void rows(const PanelJob& job);
};

// Never used: FP4 goes through Digits and line_floats_fp4, FP8 through Codes.
template <typename Use>
HADAL_YMM void line_pairs_fp4(const unsigned char*, const Use&) {}
template <typename Use>
HADAL_YMM void line_pairs_fp8(const unsigned char*, const Use&) {}

constexpr int kPeakSums = 5;
constexpr int kRowPanels[] = {0, 4, 2, 0, 1, 0, 0, 0, 0};
constexpr int kMicroPanels = 1;
constexpr int kMicroRows = 6;

#include "compute/backends/cpu/linear_body.inc"
#include "compute/backends/cpu/linear_digits.inc"

}  // namespace

void run(const PanelJob& job) {
  run_panels(job);
}

double peak(int64_t turns, float* sink) {
  return run_peak(turns, sink);
}

}  // namespace hadal::cpu::level_avx2
