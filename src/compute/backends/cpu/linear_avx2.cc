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
HADAL_YMM Vec vec_fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
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
HADAL_YMM __m256i load(const unsigned char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
HADAL_YMM Pair pair_load(const unsigned char* from) {
  return {load(from), load(from + 32)};
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

// Byte 0 is 2^-127, the subnormal 0x00400000; every other byte is an exponent field.
HADAL_YMM Vec scale_row(uint8_t byte) {
  const uint32_t bits = byte == 0 ? 0x00400000u : static_cast<uint32_t>(byte) << 23;
  float scale;
  __builtin_memcpy(&scale, &bits, 4);
  return vec_set1(scale);
}
HADAL_YMM __m256 scale_8(const unsigned char* bytes) {
  const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  return _mm256_castsi256_ps(
      _mm256_max_epu32(_mm256_slli_epi32(b, 23), _mm256_set1_epi32(0x00400000)));
}
HADAL_YMM Vec scale_rows(const unsigned char* bytes) {
  return {scale_8(bytes), scale_8(bytes + 8)};
}

// A dword of a line holds the codes of one row: byte 0 (k0, k2), 1 (k4, k6), 2 (k1, k3), 3 (k5,
// k7). Bytes 0 and 2 of the rows go before bytes 1 and 3; byte-wise tables then give the low and
// high bytes of the bf16 numbers, and interleaving them leaves the pairs in place.
struct Fp4Quad {
  __m256i pair[4];
};
HADAL_YMM void fp4_halves(__m256i codes, __m256i* first, __m256i* second) {
  const __m256i low_table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64));
  const __m256i high_table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, -0x80,
                                                -0x41, -0x41, -0x41, -0x40, -0x40, -0x40, -0x40));
  const __m256i low = _mm256_shuffle_epi8(low_table, codes);
  const __m256i high = _mm256_shuffle_epi8(high_table, codes);
  *first = _mm256_unpacklo_epi8(low, high);
  *second = _mm256_unpackhi_epi8(low, high);
}
HADAL_YMM Fp4Quad fp4_line_half(__m256i line) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i codes = _mm256_shuffle_epi8(line, order);
  Fp4Quad quad;
  fp4_halves(_mm256_and_si256(codes, nibble), &quad.pair[0], &quad.pair[2]);
  fp4_halves(_mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble), &quad.pair[1], &quad.pair[3]);
  return quad;
}

template <typename Use>
HADAL_YMM void line_pairs_fp4(const unsigned char* line, const Use& use) {
  const Fp4Quad lo = fp4_line_half(load(line));
  const Fp4Quad hi = fp4_line_half(load(line + 32));
  for (int i = 0; i < 4; ++i) use(i, Pair{lo.pair[i], hi.pair[i]});
}

// E4M3 code to the fp16 number of the same bits, which is the value times 2^-8, exact with
// subnormals; widened to f32, scaled back, and cut to bf16 pairs of 8 rows.
HADAL_YMM __m256i fp8_pairs(__m256i high_bytes) {
  const __m256i half =
      _mm256_and_si256(_mm256_srai_epi16(high_bytes, 1), _mm256_set1_epi16(-0x4080));
  const __m256 rescale = _mm256_set1_ps(256.f);
  const __m256i a =
      _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), rescale));
  const __m256i b = _mm256_castps_si256(
      _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), rescale));
  // Per 128 bits: words (a0, a1, b0, b1); then quads back in row order.
  const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
  return _mm256_permute4x64_epi64(packed, 0xD8);
}

template <typename Use>
HADAL_YMM void line_pairs_fp8(const unsigned char* line, const Use& use) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i lo = load(line), hi = load(line + 32);
  use(0,
      Pair{fp8_pairs(_mm256_unpacklo_epi8(zero, lo)), fp8_pairs(_mm256_unpacklo_epi8(zero, hi))});
  use(1,
      Pair{fp8_pairs(_mm256_unpackhi_epi8(zero, lo)), fp8_pairs(_mm256_unpackhi_epi8(zero, hi))});
}

template <typename Use>
HADAL_YMM void line_pairs_bf16(const unsigned char* line, const Use& use) {
  use(0, pair_load(line));
}

constexpr bool kFloatsFp4 = false;
template <typename Use>
HADAL_YMM void line_floats_fp4(const unsigned char*, const Use&) {}

// Straight to f32, without the factor 2^8, which line_floats_fp8's caller puts into the scale: 16
// bytes hold rows 0-3 as (k0, k1) and then as (k2, k3). `order` brings one odd k of four rows and
// then its even k into the high bytes of words.
struct Floats8 {
  __m256 odd, even;
};
HADAL_YMM Floats8 fp8_floats(__m256i line, __m256i order) {
  const __m256i high_bytes = _mm256_shuffle_epi8(line, order);
  const __m256i half =
      _mm256_and_si256(_mm256_srai_epi16(high_bytes, 1), _mm256_set1_epi16(-0x4080));
  const __m256i rows = _mm256_permute4x64_epi64(half, 0xD8);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(rows)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(rows, 1))};
}
constexpr float kFp8Factor = 256.f;  // of line_floats_fp8
constexpr bool kFloatsFp8 = true;
template <typename Use>
HADAL_YMM void line_floats_fp8(const unsigned char* line, const Use& use) {
  const __m256i lo = load(line), hi = load(line + 32);
  for (int i = 0; i < 2; ++i) {
    const auto at = [i](int j) { return static_cast<char>(8 * i + j); };
    const __m256i order = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        -1, at(1), -1, at(3), -1, at(5), -1, at(7), -1, at(0), -1, at(2), -1, at(4), -1, at(6)));
    const Floats8 a = fp8_floats(lo, order), b = fp8_floats(hi, order);
    use(2 * i + 1, Vec{a.odd, b.odd});
    use(2 * i, Vec{a.even, b.even});
  }
}
constexpr bool kStaged = true;
constexpr int kPeakSums = 5;
constexpr int kRowPanels = 4;
constexpr int kMicroPanels = 1;
constexpr int kMicroRows = 4;

#include "compute/backends/cpu/linear_body.inc"

}  // namespace

void run(const PanelJob& job) {
  run_panels(job);
}

double peak(int64_t turns, float* sink) {
  return run_peak(turns, sink);
}

}  // namespace hadal::cpu::level_avx2
