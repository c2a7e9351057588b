#include "gateway/recipe/picture_check.h"

#include <string>

#include <fmt/format.h>

#include "gateway/recipe/file_text.h"
#include "gateway/recipe/image_size.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::recipe {
namespace {

core::Error wrong(const ImageRef& image, std::string_view message) {
  return invalid(std::string(message), image.field);
}

int hex_digit(char c) {
  return c >= '0' && c <= '9'                     ? c - '0'
         : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                  : -1;
}

// The base64 text of a picture, percent escapes undone into `scratch`. nullopt: an address.
std::optional<std::string_view> base64_of(const ImageRef& image, std::string& scratch) {
  if (image.kind == ImageRef::Kind::kBase64) return image.source;
  if (image.source.empty() || (image.source[0] | 0x20) != 'd') return std::nullopt;
  std::string_view text = image.source.substr(image.source.find(',') + 1);
  if (text.find('%') == std::string_view::npos) return text;
  scratch.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
                        hex_digit(text[i + 2]) >= 0;
    if (escape) {
      scratch += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      scratch += text[i];
    }
  }
  return scratch;
}

}  // namespace

core::Status check_pictures(const CodecOptions& options, Conversation& conversation) {
  std::vector<ImageRef>& images = conversation.images;
  if (images.size() > kMaxImages) {
    return invalid(fmt::format("Too many images: max {} images per request, got {}", kMaxImages,
                               images.size()),
                   images[kMaxImages].field);
  }
  std::string scratch, bytes;
  size_t total = 0;
  for (ImageRef& image : images) {
    const std::optional<std::string_view> data = base64_of(image, scratch);
    if (!data) {
      if (options.remote_pictures) continue;
      return wrong(image, "this server fetches no pictures; send it as a base64 data URL");
    }
    // Four characters for three bytes; line breaks and padding make a text longer, never shorter.
    if (data->size() / 4 * 3 > kMaxImageFileBytes + kMaxImageFileBytes / 16) {
      return wrong(image,
                   fmt::format("image file size exceeds limit {} MB", kMaxImageFileBytes >> 20));
    }
    if (!decode_base64(*data, kMaxImageFileBytes + kMaxImageFileBytes / 16, bytes)) {
      return wrong(image, "the data is no base64");
    }
    if (bytes.size() > kMaxImageFileBytes) {
      return wrong(image,
                   fmt::format("image file size exceeds limit {} MB", kMaxImageFileBytes >> 20));
    }
    total += bytes.size();
    if (total > kMaxImageBytesTotal) {
      return invalid(fmt::format("Total image size exceeds the limit: max {} MB per request",
                                 kMaxImageBytesTotal >> 20),
                     image.field);
    }
    const auto header = read_image_header(bytes, max_image_side(images.size()));
    if (!header) return wrong(image, header.error().message);
    if (const auto plan = plan_image(header->size, image.detail); !plan) {
      return wrong(image, plan.error().message);
    }
    image.size = header->size;
  }
  return {};
}

}  // namespace hadal::recipe
