#include "gateway/fetch/url.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace hadal::fetch {
namespace {

core::Error wrong(std::string message) {
  return {core::Code::kInvalidRequest, std::move(message)};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

bool is_host_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

}  // namespace

std::string Url::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string Url::text() const {
  return fmt::format("{}://{}{}", tls ? "https" : "http", authority(), target);
}

core::Result<Url> parse_url(std::string_view text) {
  if (text.size() > kMaxUrlBytes) {
    return wrong(fmt::format("a URL may have {} bytes at most", kMaxUrlBytes));
  }
  // No spaces, controls or bytes beyond ASCII: they would end up in a request line.
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c >= 0x7F; })) {
    return wrong("a URL has no spaces, control characters or letters beyond ASCII");
  }
  Url url;
  const size_t scheme_end = text.find("://");
  const std::string scheme =
      scheme_end == std::string_view::npos ? std::string() : lower(text.substr(0, scheme_end));
  if (scheme != "http" && scheme != "https") return wrong("only http and https URLs can be read");
  url.tls = scheme == "https";
  text.remove_prefix(scheme_end + 3);
  text = text.substr(0, text.find('#'));
  const size_t authority_end = std::min(text.find_first_of("/?\\"), text.size());
  std::string_view authority = text.substr(0, authority_end);
  const std::string_view rest = text.substr(authority_end);
  if (authority.find('@') != std::string_view::npos) return wrong("a URL may hold no user name");
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return wrong("a URL without a host");
    url.host = lower(authority.substr(1, end - 1));
    port = authority.substr(end + 1);
    if (url.host.find(':') == std::string::npos) return wrong("a URL without a host");
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url.host = lower(authority.substr(0, colon));
    port = authority.substr(colon);
    if (!std::all_of(url.host.begin(), url.host.end(), is_host_byte)) {
      return wrong("a URL with a host that is no name");
    }
  }
  if (url.host.empty() || url.host.size() > 253) return wrong("a URL without a host");
  url.port = url.tls ? 443 : 80;
  if (port.size() > 1) {
    const char* const begin = port.data() + 1;
    const char* const end = port.data() + port.size();
    const auto [at, ec] = std::from_chars(begin, end, url.port);
    if (port[0] != ':' || ec != std::errc() || at != end || url.port == 0) {
      return wrong("a URL with a port that is none");
    }
  }
  url.target = rest.starts_with('/') ? std::string(rest) : "/" + std::string(rest);
  if (rest.starts_with('\\')) return wrong("a URL without a host");
  return url;
}

core::Result<Url> resolve_redirect(const Url& from, std::string_view location) {
  if (location.find("://") != std::string_view::npos &&
      location.find("://") < location.find_first_of("/?#")) {
    return parse_url(location);
  }
  if (location.starts_with("//")) {
    return parse_url((from.tls ? "https:" : "http:") + std::string(location));
  }
  std::string target;
  if (location.starts_with('/')) {
    target = location;
  } else {
    const std::string_view path =
        std::string_view(from.target).substr(0, from.target.find_first_of("?#"));
    target = path.substr(0, path.rfind('/') + 1);
    target += location;
  }
  return parse_url(fmt::format("{}://{}{}", from.tls ? "https" : "http", from.authority(), target));
}

}  // namespace hadal::fetch
