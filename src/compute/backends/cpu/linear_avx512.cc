#include <cstdint>

#include <immintrin.h>

#include "compute/backends/cpu/linear_job.h"
#include "compute/backends/cpu/linear_shape.h"

namespace hadal::cpu::level_avx512 {
namespace {

#include "compute/backends/cpu/linear_zmm.inc"

constexpr bool kTileDot = false;

HADAL_ZMM Vec pair_dot(Vec s, const uint16_t*, Pair) {  // never used: kTileDot is false
  return s;
}

// E4M3 code to the fp16 number of the same bits, which is the value times 2^-8, exact with
// subnormals; widened to f32, scaled back, and cut to bf16 pairs.
template <typename Use>
HADAL_ZMM void line_pairs_fp8(const unsigned char* line, const Use& use) {
  const __m512i mask = _mm512_set1_epi16(-0x4080);
  const __m512 rescale = _mm512_set1_ps(256.f);
  const auto pairs = [&](__m512i high_bytes) {
    const __m512i half = _mm512_and_si512(_mm512_srai_epi16(high_bytes, 1), mask);
    const __m512 a = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), rescale);
    const __m512 b = _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), rescale);
    const __m512i index =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(_mm512_castps_si512(a), index, _mm512_castps_si512(b));
  };
  const __m512i codes = _mm512_loadu_si512(line);
  use(0, pairs(_mm512_unpacklo_epi8(_mm512_setzero_si512(), codes)));
  use(1, pairs(_mm512_unpackhi_epi8(_mm512_setzero_si512(), codes)));
}

#include "compute/backends/cpu/linear_body.inc"

}  // namespace

void run(const PanelJob& job) {
  run_panels(job);
}

double peak(int64_t turns, float* sink) {
  return run_peak(turns, sink);
}

}  // namespace hadal::cpu::level_avx512
