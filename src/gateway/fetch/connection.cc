#include "gateway/fetch/connection.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace hadal::fetch {
namespace {

core::Error unreachable(std::string message) {
  return {core::Code::kUnavailable, std::move(message)};
}

}  // namespace

Connection::Connection(Connection&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      ssl_(std::exchange(other.ssl_, nullptr)),
      deadline_(other.deadline_) {}

Connection::~Connection() {
  SSL_free(ssl_);
  if (fd_ >= 0) close(fd_);
}

core::Status Connection::wait(short events) const {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline_ - std::chrono::steady_clock::now());
    if (left.count() <= 0) return core::Error{core::Code::kDeadlineExceeded, "it took too long"};
    pollfd one{fd_, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(left.count()) + 1);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return unreachable("poll failed");
  }
}

core::Status Connection::connect(const Address& address, uint16_t port) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (address.is_v6) {
    auto* to = reinterpret_cast<sockaddr_in6*>(&storage);
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(port);
    std::memcpy(&to->sin6_addr, address.bytes.data(), 16);
    size = sizeof *to;
  } else {
    auto* to = reinterpret_cast<sockaddr_in*>(&storage);
    to->sin_family = AF_INET;
    to->sin_port = htons(port);
    std::memcpy(&to->sin_addr, address.bytes.data(), 4);
    size = sizeof *to;
  }
  fd_ = socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return unreachable("no socket");
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&storage), size) == 0) return {};
  if (errno != EINPROGRESS) return unreachable("no connection");
  HADAL_TRY_VOID(wait(POLLOUT));
  int problem = 0;
  socklen_t length = sizeof problem;
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &problem, &length);
  if (problem != 0) return unreachable("no connection");
  return {};
}

core::Status Connection::settle(int result, std::string_view what) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return wait(POLLIN);
    case SSL_ERROR_WANT_WRITE:
      return wait(POLLOUT);
    default: {
      const long verified = SSL_get_verify_result(ssl_);
      ERR_clear_error();
      if (verified != X509_V_OK) {
        return unreachable(fmt::format("its certificate is not good: {}",
                                       X509_verify_cert_error_string(verified)));
      }
      return unreachable(fmt::format("the TLS {} failed", what));
    }
  }
}

core::Status Connection::handshake(const std::string& host, SSL_CTX* tls) {
  ssl_ = SSL_new(tls);
  if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_) != 1) return unreachable("no TLS");
  const bool is_address = parse_address(host).has_value();
  X509_VERIFY_PARAM* const expected = SSL_get0_param(ssl_);
  const int named = is_address ? X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str())
                               : SSL_set1_host(ssl_, host.c_str());
  if (named != 1) return unreachable("no certificate can name this host");
  if (!is_address) SSL_set_tlsext_host_name(ssl_, host.c_str());
  SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
  while (true) {
    const int result = SSL_connect(ssl_);
    if (result == 1) return {};
    HADAL_TRY_VOID(settle(result, "handshake"));
  }
}

core::Result<Connection> Connection::open(const Address& address, uint16_t port,
                                          const std::string& host, SSL_CTX* tls,
                                          Deadline deadline) {
  Connection made(-1, nullptr, deadline);
  HADAL_TRY_VOID(made.connect(address, port));
  if (tls != nullptr) {
    HADAL_TRY_VOID(made.handshake(host, tls));
  }
  return made;
}

core::Status Connection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (ssl_ != nullptr) {
      size_t n = 0;
      const int result = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &n);
      if (result == 1) {
        bytes.remove_prefix(n);
      } else {
        HADAL_TRY_VOID(settle(result, "connection"));
      }
      continue;
    }
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HADAL_TRY_VOID(wait(POLLOUT));
    } else if (errno != EINTR) {
      return unreachable("the connection broke");
    }
  }
  return {};
}

core::Result<std::string_view> Connection::read() {
  while (true) {
    if (ssl_ != nullptr) {
      size_t n = 0;
      const int result = SSL_read_ex(ssl_, buffer_, sizeof buffer_, &n);
      if (result == 1) return std::string_view(buffer_, n);
      if (SSL_get_error(ssl_, result) == SSL_ERROR_ZERO_RETURN) return std::string_view();
      HADAL_TRY_VOID(settle(result, "connection"));
      continue;
    }
    const ssize_t n = recv(fd_, buffer_, sizeof buffer_, 0);
    if (n >= 0) return std::string_view(buffer_, static_cast<size_t>(n));
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HADAL_TRY_VOID(wait(POLLIN));
    } else if (errno != EINTR) {
      return unreachable("the connection broke");
    }
  }
}

}  // namespace hadal::fetch
