#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "gateway/recipe/image_size.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::recipe {

namespace {

uint32_t byte(std::string_view bytes, size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}
uint32_t big16(std::string_view bytes, size_t at) {
  return byte(bytes, at) << 8 | byte(bytes, at + 1);
}
uint32_t big32(std::string_view bytes, size_t at) {
  return big16(bytes, at) << 16 | big16(bytes, at + 2);
}
uint32_t little16(std::string_view bytes, size_t at) {
  return byte(bytes, at + 1) << 8 | byte(bytes, at);
}
uint32_t little24(std::string_view bytes, size_t at) {
  return byte(bytes, at + 2) << 16 | little16(bytes, at);
}

std::optional<ImageSize> png_size(std::string_view bytes) {
  if (bytes.size() < 24 || bytes.substr(12, 4) != "IHDR") return std::nullopt;
  return ImageSize{big32(bytes, 16), big32(bytes, 20)};
}

std::optional<ImageSize> gif_size(std::string_view bytes) {
  if (bytes.size() < 10) return std::nullopt;
  return ImageSize{little16(bytes, 6), little16(bytes, 8)};
}

// Walks the segments up to the frame header. Each step moves on, so the work is bounded by the
// number of segments.
std::optional<ImageSize> jpeg_size(std::string_view bytes) {
  size_t at = 2;
  while (at + 4 <= bytes.size()) {
    if (byte(bytes, at) != 0xFF) return std::nullopt;
    const uint32_t marker = byte(bytes, at + 1);
    if (marker == 0xFF) {
      ++at;
      continue;
    }
    if (marker == 0xD8 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) {
      at += 2;
      continue;
    }
    const uint32_t size = big16(bytes, at + 2);
    const bool frame =
        marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame) {
      if (at + 9 > bytes.size()) return std::nullopt;
      return ImageSize{big16(bytes, at + 7), big16(bytes, at + 5)};
    }
    if (size < 2 || marker == 0xD9 || marker == 0xDA) return std::nullopt;
    at += 2 + size;
  }
  return std::nullopt;
}

std::optional<ImageSize> webp_size(std::string_view bytes) {
  if (bytes.size() < 30) return std::nullopt;
  const std::string_view kind = bytes.substr(12, 4);
  if (kind == "VP8X") return ImageSize{little24(bytes, 24) + 1, little24(bytes, 27) + 1};
  if (kind == "VP8L") {
    if (byte(bytes, 20) != 0x2F) return std::nullopt;
    const uint32_t bits = little24(bytes, 21) | byte(bytes, 24) << 24;
    return ImageSize{(bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1};
  }
  if (kind == "VP8 " && little24(bytes, 23) == 0x2A019D) {
    return ImageSize{little16(bytes, 26) & 0x3FFF, little16(bytes, 28) & 0x3FFF};
  }
  return std::nullopt;
}

}  // namespace

core::Result<ImageHeader> read_image_header(std::string_view bytes, uint32_t max_side) {
  ImageHeader header;
  std::optional<ImageSize> size;
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) {
    header.type = ImageType::kPng;
    size = png_size(bytes);
  } else if (bytes.starts_with("\xFF\xD8\xFF")) {
    header.type = ImageType::kJpeg;
    size = jpeg_size(bytes);
  } else if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) {
    header.type = ImageType::kGif;
    size = gif_size(bytes);
  } else if (bytes.size() >= 16 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP") {
    header.type = ImageType::kWebp;
    size = webp_size(bytes);
  }
  if (!size || size->width == 0 || size->height == 0) {
    return invalid(std::string(kUnsupportedImageText), {});
  }
  if (size->width > max_side || size->height > max_side) {
    return invalid(fmt::format("the image is {} x {} pixels; a side may have {} at most",
                               size->width, size->height, max_side),
                   {});
  }
  header.size = *size;
  return header;
}

}  // namespace hadal::recipe
