#pragma once

#include "base/core/result.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/options.h"

namespace hadal::recipe {

// Looks at the pictures of a request that was read: their number, that each is a base64 data URL
// (or, with CodecOptions::remote_pictures, an address) of a PNG, JPEG, GIF or WebP, its bytes, its
// sides. Reads headers only, no pixels; one picture's bytes are in memory at a time. Sets
// ImageRef::size of those that came with the request. kInvalidRequest names the picture's field.
core::Status check_pictures(const CodecOptions& options, Conversation& conversation);

}  // namespace hadal::recipe
