#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/result.h"
#include "gateway/fetch/address.h"
#include "gateway/fetch/url.h"

namespace hadal::fetch {

class Connection;

struct ClientConfig {
  // "host:port" entries that may be at a private address: services of our own. Everything else must
  // be on the public internet, each address of its name.
  std::vector<std::string> private_hosts;
  size_t max_bytes = 4u << 20;                // of one body; more is cut off
  std::chrono::milliseconds timeout{20'000};  // of one call, redirects included
  int max_redirects = 4;
  std::string ca_file;  // PEM; "": the system's certificates
};

struct Reply {
  int status = 0;
  std::string content_type;
  std::string body;
  std::string url;  // after redirects
  bool truncated = false;
};

// A client for pages and services elsewhere that cannot be led into our own network: the name is
// resolved once, every address it has is checked (address.h), and the connection goes to a checked
// address, not to the name again; each redirect is checked anew, and none leads from https to http.
// TLS 1.2 or newer, the certificate checked against the name. No cookies, no credentials, no
// compression. Blocks; one connection a call; thread-safe.
class WebClient {
 public:
  static core::Result<std::unique_ptr<WebClient>> make(ClientConfig config);
  ~WebClient();

  // kInvalidRequest: the URL or its address may not be read. kUnavailable, kDeadlineExceeded: it
  // could not. A reply with any status is a reply.
  core::Result<Reply> get(std::string_view url) const;
  // Redirects of a POST are not followed.
  using Headers = std::vector<std::pair<std::string, std::string>>;
  core::Result<Reply> post(std::string_view url, std::string_view content_type,
                           std::string_view body, const Headers& headers) const;

 private:
  struct Tls;
  struct Call;
  explicit WebClient(ClientConfig config);
  core::Result<Reply> run(const Call& call, const Url& url,
                          std::chrono::steady_clock::time_point deadline,
                          std::string& location) const;
  core::Result<Reply> exchange(const Call& call, const Url& url, Connection& connection,
                               std::string& location) const;
  core::Result<std::vector<Address>> resolve(const Url& url) const;

  const ClientConfig config_;
  std::unique_ptr<Tls> tls_;
};

// Of the addresses that a name has: all of them if each may be connected to. kInvalidRequest names
// the first that may not. Pure, for tests.
core::Result<std::vector<Address>> allowed_addresses(std::vector<Address> addresses, const Url& url,
                                                     const std::vector<std::string>& private_hosts);

}  // namespace hadal::fetch
