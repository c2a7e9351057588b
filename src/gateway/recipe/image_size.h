#pragma once

#include <cstdint>
#include <string_view>

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"

namespace hadal::recipe {

// The size that a picture is resized to before the vision tower, and its place in the prompt: a
// grid of patches of 42 pixels, one id for each, one more a row, and two.
struct ImagePlan {
  ImageSize size;
  uint32_t grid_width = 0, grid_height = 0;
  uint32_t n_tokens = 0;
};
// kInvalidRequest if no size fits the limits (sides beyond all proportion).
core::Result<ImagePlan> plan_image(ImageSize size, ImageDetail detail);

// Tokens of a picture of this size without resizing it for `detail` first.
core::Result<ImagePlan> plan_image_tokens(ImageSize size);

enum class ImageType : uint8_t { kPng, kJpeg, kGif, kWebp };
struct ImageHeader {
  ImageType type = ImageType::kPng;
  ImageSize size;
};
// Reads type and size from the first bytes of a file; looks at no pixel. kInvalidRequest if it is
// none of the four types or its size is beyond `max_side`.
core::Result<ImageHeader> read_image_header(std::string_view bytes, uint32_t max_side);

// Limits of a request's pictures.
inline constexpr size_t kMaxImages = 600;
inline constexpr size_t kMaxImageFileBytes = 32u << 20;
inline constexpr size_t kMaxImageBytesTotal = 64u << 20;
// Sides may have 8192 pixels, 4096 when there are more than 14 pictures.
uint32_t max_image_side(size_t n_images);

}  // namespace hadal::recipe
