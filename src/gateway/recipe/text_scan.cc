#include "gateway/recipe/text_scan.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hadal::recipe {

namespace {

bool stops_string(char c) {
  return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
}

bool is_continuation(unsigned char c) {
  return (c & 0xC0) == 0x80;
}

// One character that is not ASCII; its size, or 0 if it is malformed.
size_t utf8_size(const unsigned char* p, size_t left) {
  const unsigned char c = p[0];
  if (c >= 0xE0 && c < 0xF0) {
    if (left < 3 || !is_continuation(p[1]) || !is_continuation(p[2])) return 0;
    if (c == 0xE0 && p[1] < 0xA0) return 0;
    if (c == 0xED && p[1] >= 0xA0) return 0;
    return 3;
  }
  if (c >= 0xC2 && c < 0xE0) return left >= 2 && is_continuation(p[1]) ? 2 : 0;
  if (c >= 0xF0 && c <= 0xF4) {
    if (left < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) || !is_continuation(p[3])) {
      return 0;
    }
    if (c == 0xF0 && p[1] < 0x90) return 0;
    if (c == 0xF4 && p[1] >= 0x90) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

const char* find_string_stop(const char* at, const char* end) {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i control = _mm_set1_epi8(0x1F);
  while (end - at >= 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i hit =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)),
                     _mm_cmpeq_epi8(_mm_min_epu8(block, control), block));
    const int mask = _mm_movemask_epi8(hit);
    if (mask != 0) return at + __builtin_ctz(static_cast<unsigned>(mask));
    at += 16;
  }
#endif
  while (at != end && !stops_string(*at)) ++at;
  return at;
}

bool is_valid_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = p + text.size();
  while (p != end) {
    if (*p < 0x80) {
      ++p;
      uint64_t word = 0;
      while (end - p >= 8) {
        std::memcpy(&word, p, 8);
        if ((word & 0x8080808080808080u) != 0) break;
        p += 8;
      }
      while (p != end && *p < 0x80) ++p;
      continue;
    }
    const size_t size = utf8_size(p, static_cast<size_t>(end - p));
    if (size == 0) return false;
    p += size;
  }
  return true;
}

}  // namespace hadal::recipe
