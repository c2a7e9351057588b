#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <openssl/types.h>

#include "base/core/result.h"
#include "gateway/fetch/address.h"

namespace hadal::fetch {

// One outgoing connection, plain or TLS, with a deadline over all of it. Closes itself.
class Connection {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // `tls`: the context to use, or null for a plain connection; `host`: whom the certificate must
  // name.
  static core::Result<Connection> open(const Address& address, uint16_t port,
                                       const std::string& host, SSL_CTX* tls, Deadline deadline);
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&&) = delete;
  ~Connection();

  core::Status write(std::string_view bytes);
  // At least one byte, or "" at the end of the stream.
  core::Result<std::string_view> read();

 private:
  Connection(int fd, SSL* ssl, Deadline deadline) : fd_(fd), ssl_(ssl), deadline_(deadline) {}
  core::Status wait(short events) const;
  core::Status connect(const Address& address, uint16_t port);
  core::Status handshake(const std::string& host, SSL_CTX* tls);
  // Waits for what an unfinished TLS call needs, or says what went wrong.
  core::Status settle(int result, std::string_view what);

  int fd_;
  SSL* ssl_;
  Deadline deadline_;
  char buffer_[16384];
};

}  // namespace hadal::fetch
