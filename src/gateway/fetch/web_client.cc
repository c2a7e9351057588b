#include "gateway/fetch/web_client.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "gateway/fetch/connection.h"
#include "gateway/fetch/reply_reader.h"

namespace hadal::fetch {
namespace {

core::Error refused(std::string message) {
  return {core::Code::kInvalidRequest, std::move(message)};
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

struct WebClient::Tls {
  Tls() : context(SSL_CTX_new(TLS_client_method())) {}
  ~Tls() { SSL_CTX_free(context); }
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  SSL_CTX* const context;
};

struct WebClient::Call {
  std::string_view method, content_type, body;
  const Headers* headers = nullptr;
};

WebClient::WebClient(ClientConfig config)
    : config_(std::move(config)), tls_(std::make_unique<Tls>()) {}
WebClient::~WebClient() = default;

core::Result<std::unique_ptr<WebClient>> WebClient::make(ClientConfig config) {
  std::unique_ptr<WebClient> made(new WebClient(std::move(config)));
  SSL_CTX* const context = made->tls_->context;
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
    return core::Error{core::Code::kInternal, "no TLS context"};
  }
  const std::string& file = made->config_.ca_file;
  const int loaded = file.empty() ? SSL_CTX_set_default_verify_paths(context)
                                  : SSL_CTX_load_verify_locations(context, file.c_str(), nullptr);
  if (loaded != 1) {
    return core::Error{core::Code::kIo,
                       fmt::format("no certificates of authorities in {}",
                                   file.empty() ? "the system's folder" : file),
                       "web.ca-file"};
  }
  return made;
}

core::Result<std::vector<Address>> allowed_addresses(
    std::vector<Address> addresses, const Url& url, const std::vector<std::string>& private_hosts) {
  if (addresses.empty()) {
    return core::Error{core::Code::kUnavailable, fmt::format("{} has no address", url.host)};
  }
  if (std::find(private_hosts.begin(), private_hosts.end(), url.authority()) !=
      private_hosts.end()) {
    return addresses;
  }
  for (const Address& address : addresses) {
    if (!is_public(address)) {
      return refused(fmt::format("{} is at {}, which is not on the public internet", url.host,
                                 to_string(address)));
    }
  }
  return addresses;
}

core::Result<std::vector<Address>> WebClient::resolve(const Url& url) const {
  std::vector<Address> found;
  if (const auto literal = parse_address(url.host)) {
    found.push_back(*literal);
  } else {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (getaddrinfo(url.host.c_str(), nullptr, &hints, &list) != 0) {
      return core::Error{core::Code::kUnavailable, fmt::format("{} is not known", url.host)};
    }
    for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
      Address address;
      if (at->ai_family == AF_INET) {
        std::memcpy(address.bytes.data(),
                    &reinterpret_cast<const sockaddr_in*>(at->ai_addr)->sin_addr, 4);
      } else if (at->ai_family == AF_INET6) {
        address.is_v6 = true;
        std::memcpy(address.bytes.data(),
                    &reinterpret_cast<const sockaddr_in6*>(at->ai_addr)->sin6_addr, 16);
      } else {
        continue;
      }
      found.push_back(address);
    }
    freeaddrinfo(list);
  }
  return allowed_addresses(std::move(found), url, config_.private_hosts);
}

core::Result<Reply> WebClient::exchange(const Call& call, const Url& url, Connection& connection,
                                        std::string& location) const {
  const bool default_port = url.port == (url.tls ? 443 : 80);
  std::string host = url.authority();
  if (default_port) host.erase(host.rfind(':'));
  std::string head = fmt::format(
      "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: hadal\r\nAccept: */*\r\n"
      "Accept-Encoding: identity\r\nConnection: close\r\n",
      call.method, url.target, host);
  if (call.headers != nullptr) {
    for (const auto& [name, value] : *call.headers) head += fmt::format("{}: {}\r\n", name, value);
    head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", call.content_type,
                        call.body.size());
  }
  head += "\r\n";
  HADAL_TRY_VOID(connection.write(head));
  HADAL_TRY_VOID(connection.write(call.body));
  ReplyReader reader(config_.max_bytes);
  while (true) {
    HADAL_TRY(const std::string_view bytes, connection.read());
    if (bytes.empty() || !reader.feed(bytes)) break;
  }
  HADAL_TRY_VOID(reader.end());
  location = reader.header("location");
  Reply reply;
  reply.status = reader.status();
  reply.content_type = reader.header("content-type");
  reply.truncated = reader.truncated();
  reply.url = url.text();
  reply.body = reader.take_body();
  return reply;
}

core::Result<Reply> WebClient::run(const Call& call, const Url& url,
                                   std::chrono::steady_clock::time_point deadline,
                                   std::string& location) const {
  HADAL_TRY(const std::vector<Address> addresses, resolve(url));
  core::Error error{core::Code::kUnavailable, "no connection"};
  for (const Address& address : addresses) {
    auto made =
        Connection::open(address, url.port, url.host, url.tls ? tls_->context : nullptr, deadline);
    if (made) return exchange(call, url, *made, location);
    error = made.error();
  }
  error.message = fmt::format("{} cannot be reached: {}", url.host, error.message);
  return error;
}

core::Result<Reply> WebClient::get(std::string_view text) const {
  const auto deadline = std::chrono::steady_clock::now() + config_.timeout;
  HADAL_TRY(Url url, parse_url(text));
  const Call call{.method = "GET", .content_type = {}, .body = {}};
  for (int i = 0; i <= config_.max_redirects; ++i) {
    std::string location;
    HADAL_TRY(Reply reply, run(call, url, deadline, location));
    if (!is_redirect(reply.status) || location.empty()) return reply;
    HADAL_TRY(Url next, resolve_redirect(url, location));
    if (url.tls && !next.tls) return refused("a redirect leads from https to http");
    url = std::move(next);
  }
  return refused(fmt::format("more than {} redirects", config_.max_redirects));
}

core::Result<Reply> WebClient::post(std::string_view text, std::string_view content_type,
                                    std::string_view body, const Headers& headers) const {
  HADAL_TRY(const Url url, parse_url(text));
  std::string location;
  return run({.method = "POST", .content_type = content_type, .body = body, .headers = &headers},
             url, std::chrono::steady_clock::now() + config_.timeout, location);
}

}  // namespace hadal::fetch
