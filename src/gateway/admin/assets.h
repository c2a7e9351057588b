#pragma once

#include <span>
#include <string_view>

namespace hadal::admin {

// A file of the web page, inside the program.
struct Asset {
  std::string_view path;  // as in the URL
  std::string_view content_type;
  std::string_view bytes;
};
std::span<const Asset> web_assets();
// openapi.json as it lies beside this file.
std::string_view openapi_text();

}  // namespace hadal::admin
