#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/http/message.h"

namespace hadal::http {

// Who may use the server. The file has one key a line, "KEY" or "KEY TENANT"; empty lines and lines
// that begin with '#' are skipped. Keys are kept as SHA-256 digests and compared in constant time,
// all of them for every request. Thread-safe; reload() may run while requests are checked.
class ApiKeys {
 public:
  // Errors (kIo, kInvalidRequest) name the file and the line; no key is ever part of a message.
  static core::Result<std::unique_ptr<ApiKeys>> load(const std::string& path);
  core::Status reload();  // on an error the old keys stay
  size_t size() const;

  // The tenant of the key that the request carries (Bearer, x-api-key, or the password of Basic),
  // or nothing.
  std::optional<std::string> tenant_of(const Request& request) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    Digest digest;
    std::string tenant;
  };
  explicit ApiKeys(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  mutable std::mutex mutex_;  // guards entries_
  std::shared_ptr<const std::vector<Entry>> entries_;
};

// The key that a request carries, or "".
std::string_view presented_key(const Request& request);
// The password of HTTP Basic authentication, by which a browser's prompt carries a key; "" if there
// is none.
std::string basic_password(const Request& request);
// Compares in time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace hadal::http
