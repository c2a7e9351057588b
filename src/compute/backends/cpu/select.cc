#include "compute/backends/cpu/select.h"

#include <algorithm>
#include <cstring>

namespace hadal::cpu {
namespace {

// Order-preserving map of f32 to unsigned; NaN and -inf become 0.
uint32_t rank(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u || u == 0xFF800000u) return 0;
  if (u == 0x80000000u) u = 0;  // -0 equals 0
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

}  // namespace

int64_t select_top(const float* score, int64_t n, int64_t k, int32_t* out) {
  // Radix descent, 11 + 11 + 10 bits: `prefix` is what the k-th largest rank begins with, `left`
  // how many of that prefix are still wanted.
  uint32_t prefix = 0, mask = 0;
  int64_t left = std::min(n, k);
  if (left == 0) return 0;
  constexpr int kShifts[] = {21, 10, 0};
  constexpr uint32_t kWidths[] = {2048, 2048, 1024};
  for (int pass = 0; pass < 3; ++pass) {
    uint32_t count[2048] = {};
    const int shift = kShifts[pass];
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t r = rank(score[i]);
      if ((r & mask) == prefix) ++count[(r >> shift) & (kWidths[pass] - 1)];
    }
    uint32_t digit = kWidths[pass] - 1;
    while (count[digit] < left) left -= count[digit--];
    prefix |= digit << shift;
    mask |= (kWidths[pass] - 1) << shift;
  }
  int64_t chosen = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t r = rank(score[i]);
    if (r == 0 || r < prefix) continue;
    if (r == prefix && left-- <= 0) continue;
    out[chosen++] = static_cast<int32_t>(i);
  }
  return chosen;
}

}  // namespace hadal::cpu
