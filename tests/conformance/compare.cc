#include "conformance/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/core/check.h"
#include "compute/formats/elements.h"

namespace hadal::test {
namespace {

size_t width_of(OutType type) {
  switch (type) {
    case OutType::kBytes:
      return 1;
    case OutType::kBf16:
      return 2;
    case OutType::kI32:
    case OutType::kF32:
      return 4;
  }
  return 1;
}

double number(const Output& o, size_t i) {
  if (o.type == OutType::kF32) {
    float x;
    std::memcpy(&x, o.bytes.data() + 4 * i, 4);
    return x;
  }
  uint16_t x;
  std::memcpy(&x, o.bytes.data() + 2 * i, 2);
  return formats::bf16_to_float(x);
}

// Distance between neighbours around `magnitude`.
double unit(OutType type, double magnitude) {
  const int bits = type == OutType::kF32 ? 23 : 7;
  return std::ldexp(1.0, std::max(std::ilogb(magnitude), -126) - bits);
}

Distance compare_places(const Output& got, const Output& want, double allowed) {
  const size_t width = width_of(want.type), n = want.bytes.size() / width;
  Distance d;
  size_t n_other = 0;
  for (size_t i = 0; i < n; ++i) {
    if (std::memcmp(got.bytes.data() + i * width, want.bytes.data() + i * width, width) == 0)
      continue;
    if (n_other++ == 0) d.where = "element " + std::to_string(i);
  }
  d.worst = n == 0 ? 0 : static_cast<double>(n_other) / static_cast<double>(n);
  d.within = d.worst <= allowed;
  return d;
}

}  // namespace

Distance compare(const Output& got, const Output& want, bool exact) {
  HADAL_CHECK(got.bytes.size() == want.bytes.size(), want.name);
  const bool numbers = want.type == OutType::kF32 || want.type == OutType::kBf16;
  if (exact || !numbers || want.ulps == 0) return compare_places(got, want, exact ? 0 : want.loose);
  const size_t n = want.bytes.size() / width_of(want.type);
  double squares = 0;
  for (size_t i = 0; i < n; ++i) {
    const double w = number(want, i);
    if (std::isfinite(w)) squares += w * w;
  }
  const double rms = std::sqrt(squares / static_cast<double>(std::max<size_t>(n, 1)));
  Distance d;
  for (size_t i = 0; i < n; ++i) {
    const double g = number(got, i), w = number(want, i);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    const double magnitude = std::max(std::isfinite(w) ? std::fabs(w) : 0.0, rms);
    const double error = std::fabs(g - w) / (want.ulps * unit(want.type, magnitude));
    if (!(error <= d.worst)) d.worst = error;
    if (error <= 1 || !d.within) continue;
    d.within = false;
    d.where =
        "element " + std::to_string(i) + ": " + std::to_string(g) + ", not " + std::to_string(w);
  }
  return d;
}

}  // namespace hadal::test
