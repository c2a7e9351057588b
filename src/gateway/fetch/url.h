#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/result.h"

namespace hadal::fetch {

// An http or https address, taken apart.
struct Url {
  bool tls = false;
  std::string host;  // lower case, no brackets
  uint16_t port = 0;
  std::string target;  // path and query, begins with '/'; no fragment
  // "host:port", with brackets around an IPv6 address.
  std::string authority() const;
  std::string text() const;
};

constexpr size_t kMaxUrlBytes = 8192;

// kInvalidRequest for another scheme, a user name, a missing host, bytes that no URL has.
core::Result<Url> parse_url(std::string_view text);
// Where a redirect from `from` leads: an absolute URL, "//host/path", "/path" or a relative path.
core::Result<Url> resolve_redirect(const Url& from, std::string_view location);

}  // namespace hadal::fetch
