#include <algorithm>
#include <cmath>
#include <numbers>

#include "compute/model/forward.h"

namespace hadal::model {

RopeTables make_rope_tables(const weights::ModelConfig& config) {
  const int32_t d = config.d_rope;
  const auto frequency = [&](double base, int32_t i) {
    return 1.0f /
           std::pow(static_cast<float>(base), static_cast<float>(2 * i) / static_cast<float>(d));
  };
  const weights::RopeScaling& yarn = config.rope_scaling;
  RopeTables out;
  // The dimension that turns `rotations` times over the original context.
  const auto correction = [&](double rotations) {
    const auto length = static_cast<double>(yarn.original_max_positions);
    return d * std::log(length / (2 * std::numbers::pi * rotations)) /
           (2 * std::log(config.compress_rope_theta));
  };
  double low = 0, high = 0;
  const bool scaled = yarn.original_max_positions > 0;
  if (scaled) {
    low = std::max(std::floor(correction(yarn.beta_fast)), 0.0);
    high = std::min(std::ceil(correction(yarn.beta_slow)), static_cast<double>(d - 1));
  }
  const auto width = static_cast<float>(std::max(high - low, 1e-3));
  for (int32_t i = 0; i < d / 2; ++i) {
    out.main.push_back(frequency(config.rope_theta, i));
    const float f = frequency(config.compress_rope_theta, i);
    if (!scaled) {
      out.comp.push_back(f);
      continue;
    }
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / width, 0.0f, 1.0f);
    out.comp.push_back(f / static_cast<float>(yarn.factor) * ramp + f * (1.0f - ramp));
  }
  return out;
}

}  // namespace hadal::model
