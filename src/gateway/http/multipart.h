#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"

namespace hadal::http {

// One part of a multipart/form-data body (RFC 7578). Views into the body.
struct FormPart {
  std::string name;
  std::string filename;  // "" for a field
  bool has_filename = false;
  std::string_view content;
};

// The parts of `body`, whose boundary stands in `content_type`. kInvalidRequest for another type, a
// missing or broken boundary, a part without a name, and more than kMostParts parts.
core::Result<std::vector<FormPart>> parse_multipart(std::string_view content_type,
                                                    std::string_view body);
inline constexpr size_t kMostParts = 32;

}  // namespace hadal::http
