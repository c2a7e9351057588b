#include "gateway/recipe/image_size.h"

#include <algorithm>
#include <cmath>

namespace hadal::recipe {

namespace {

// Constants of the published preprocessor.
constexpr double kLowSide = 512;  // detail low
constexpr double kMinPixels = 544.0 * 544.0;
constexpr double kPatch = 14, kCell = 42;  // a cell is 3 x 3 patches
constexpr double kMaxTokens = 1024;
constexpr double kMaxWebpSide = 16380;
constexpr int kMaxRounds = 10;

struct Sides {
  double w = 0, h = 0;
  bool operator==(const Sides&) const = default;
};

double round_up(double value, double unit) {
  return std::max(unit, std::ceil(value / unit) * unit);
}

struct Grid {
  double w = 0, h = 0;
  double tokens() const { return h * (w + 1) + 2; }
};

Grid grid_of(Sides sides) {
  return {std::ceil(round_up(sides.w, kPatch) / kCell),
          std::ceil(round_up(sides.h, kPatch) / kCell)};
}

// Sides whose grid has at most kMaxTokens tokens, in the same proportion.
Sides shrink(Sides sides) {
  const double ratio = sides.h / sides.w;
  const double w = std::sqrt((kMaxTokens - 2) / ratio + 0.25) - 0.5;
  const double h = w * ratio;
  if (w < 1) return {kCell, 21462};
  if (h < 1) return {42882, kPatch};
  const double scale = std::min(std::floor(w) * kCell / sides.w, std::floor(h) * kCell / sides.h);
  return {std::floor(sides.w * scale / kPatch) * kPatch,
          std::floor(sides.h * scale / kPatch) * kPatch};
}

core::Result<Sides> settle(Sides sides, bool for_file) {
  for (int round = 0; round < kMaxRounds; ++round) {
    const Sides before = sides;
    if (sides.w * sides.h < kMinPixels) {
      const double scale = std::sqrt(kMinPixels / (sides.w * sides.h));
      sides = {std::trunc(sides.w * scale), std::trunc(sides.h * scale)};
    }
    if (grid_of(sides).tokens() > kMaxTokens) {
      sides = shrink(sides);
    } else {
      sides = {round_up(sides.w, kPatch), round_up(sides.h, kPatch)};
    }
    if (for_file) sides = {std::min(sides.w, kMaxWebpSide), std::min(sides.h, kMaxWebpSide)};
    if (sides == before) return sides;
  }
  return core::Error{core::Code::kInvalidRequest, "the image's sides are out of all proportion"};
}

core::Result<ImagePlan> plan(Sides sides, bool for_file) {
  if (sides.w < 1 || sides.h < 1) {
    return core::Error{core::Code::kInvalidRequest, "the image is empty"};
  }
  HADAL_TRY(const Sides settled, settle(sides, for_file));
  const Grid grid = grid_of(settled);
  ImagePlan out;
  out.size = {static_cast<uint32_t>(settled.w), static_cast<uint32_t>(settled.h)};
  out.grid_width = static_cast<uint32_t>(grid.w);
  out.grid_height = static_cast<uint32_t>(grid.h);
  out.n_tokens = static_cast<uint32_t>(grid.tokens());
  return out;
}

}  // namespace

core::Result<ImagePlan> plan_image_tokens(ImageSize size) {
  return plan({static_cast<double>(size.width), static_cast<double>(size.height)}, false);
}

core::Result<ImagePlan> plan_image(ImageSize size, ImageDetail detail) {
  Sides sides{static_cast<double>(size.width), static_cast<double>(size.height)};
  const double longest = std::max(sides.w, sides.h);
  if (detail == ImageDetail::kLow && longest > kLowSide) {
    const double scale = kLowSide / longest;
    sides = {std::max(1.0, std::round(sides.w * scale)),
             std::max(1.0, std::round(sides.h * scale))};
  }
  return plan(sides, true);
}

uint32_t max_image_side(size_t n_images) {
  return n_images > 14 ? 4096 : 8192;
}

}  // namespace hadal::recipe
