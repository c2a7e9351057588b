#include "gateway/http/server.h"

#include <random>
#include <thread>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <fmt/format.h>

#include "base/core/log.h"
#include "gateway/http/connection.h"

namespace hadal::http {

namespace asio = boost::asio;
using boost::system::error_code;

class Server::Impl {
 public:
  Impl(const ServerConfig& config, Handler& handler)
      : config_(config),
        shared_{config_, handler},
        threads_(make_threads(shared_, config.n_threads)) {
    std::random_device random;
    shared_.id_salt = (uint64_t{random()} << 32) | random();
    shared_.request_id_prefix = "req-";
    append_hex(shared_.request_id_prefix, shared_.id_salt, 16);
  }

  ~Impl() { stop(); }

  core::Status bind() {
    HADAL_TRY_VOID(load_tls());
    error_code error;
    const auto address =
        asio::ip::make_address(config_.host == "localhost" ? "127.0.0.1" : config_.host, error);
    if (error) {
      return core::Error{
          core::Code::kInvalidRequest,
          fmt::format("--host {}: not an IP address; give one such as 127.0.0.1, 0.0.0.0 or ::1",
                      config_.host),
          "host"};
    }
    const asio::ip::tcp::endpoint endpoint(address, config_.port);
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(asio::ip::tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(4096, error);
    if (error) {
      return core::Error{
          core::Code::kIo,
          fmt::format("cannot listen on {}:{}: {}; choose another --port or stop what uses it",
                      config_.host, config_.port, error.message()),
          "port"};
    }
    port_ = acceptor_->local_endpoint().port();
    return {};
  }

  void start() {
    accept();
    for (auto& io : threads_) workers_.emplace_back([&io] { io->run(); });
  }

  void drain() {
    shared_.draining = true;
    asio::post(threads_[0]->context(), [this] {
      error_code ignored;
      acceptor_->close(ignored);
    });
    for (auto& io : threads_) io->close_idle();
  }

  void stop() {
    if (workers_.empty()) return;
    drain();
    for (auto& io : threads_) {
      io->close_all();
      asio::post(io->context(), [&io] { io->stop(); });
    }
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  uint16_t port() const { return port_; }
  const Shared& shared() const { return shared_; }

 private:
  static std::vector<std::unique_ptr<IoThread>> make_threads(Shared& shared, uint32_t n) {
    std::vector<std::unique_ptr<IoThread>> threads;
    for (uint32_t i = 0; i < std::max(1u, n); ++i)
      threads.push_back(std::make_unique<IoThread>(shared));
    return threads;
  }

  core::Status load_tls() {
    if (config_.tls_certificate_file.empty() && config_.tls_key_file.empty()) return {};
    if (config_.tls_certificate_file.empty() || config_.tls_key_file.empty()) {
      return core::Error{core::Code::kInvalidRequest,
                         "TLS needs both a certificate file and a key file; give the other one too",
                         "tls"};
    }
    tls_ = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
    error_code error;
    tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                          asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                          asio::ssl::context::no_tlsv1_1,
                      error);
    tls_->use_certificate_chain_file(config_.tls_certificate_file, error);
    if (error) {
      return core::Error{core::Code::kIo,
                         fmt::format("cannot use the certificate file {}: {}",
                                     config_.tls_certificate_file, error.message()),
                         "tls"};
    }
    tls_->use_private_key_file(config_.tls_key_file, asio::ssl::context::pem, error);
    if (error) {
      return core::Error{
          core::Code::kIo,
          fmt::format("cannot use the key file {}: {}", config_.tls_key_file, error.message()),
          "tls"};
    }
    return {};
  }

  void accept() {
    IoThread& io = *threads_[next_thread_++ % threads_.size()];
    acceptor_->async_accept(
        io.context(), [this, &io](error_code error, asio::ip::tcp::socket socket) {
          if (error == asio::error::operation_aborted || !acceptor_->is_open()) return;
          if (error) {
            // Out of descriptors: wait instead of spinning; connections that end free some.
            HADAL_LOG(kWarning, "http",
                      "cannot accept a connection: {}; raise the limit of open files (ulimit -n)",
                      error.message());
            pause_.expires_after(std::chrono::milliseconds(100));
            pause_.async_wait([this](error_code waited) {
              if (!waited) accept();
            });
            return;
          }
          adopt(io, std::move(socket));
          accept();
        });
  }

  void adopt(IoThread& io, asio::ip::tcp::socket socket) {
    error_code error;
    const auto peer = socket.remote_endpoint(error);
    if (error) return;
    if (shared_.n_connections.load() >= config_.max_connections) {
      static constexpr std::string_view kBusy =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: "
          "close\r\n\r\n";
      socket.non_blocking(true, error);
      if (!tls_) socket.write_some(asio::buffer(kBusy.data(), kBusy.size()), error);
      return;
    }
    auto transport = tls_ ? make_tls_transport(std::move(socket), *tls_)
                          : make_plain_transport(std::move(socket), io.context(), io.poll());
    auto connection =
        std::make_shared<Connection>(std::move(transport), io, shared_, peer.address().to_string(),
                                     peer.address().is_loopback());
    asio::post(io.context(), [&io, connection = std::move(connection)] {
      io.adopt(connection);
      connection->start();
    });
  }

  const ServerConfig config_;
  Shared shared_;
  std::unique_ptr<asio::ssl::context> tls_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::unique_ptr<asio::ip::tcp::acceptor> acceptor_ =
      std::make_unique<asio::ip::tcp::acceptor>(threads_[0]->context());
  asio::steady_timer pause_{threads_[0]->context()};
  std::vector<std::thread> workers_;
  size_t next_thread_ = 0;
  uint16_t port_ = 0;
};

core::Result<std::unique_ptr<Server>> Server::listen(const ServerConfig& config, Handler& handler) {
  auto impl = std::make_unique<Impl>(config, handler);
  HADAL_TRY_VOID(impl->bind());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

void Server::start() {
  impl_->start();
}
uint16_t Server::port() const {
  return impl_->port();
}
size_t Server::n_connections() const {
  return impl_->shared().n_connections.load();
}
size_t Server::n_active() const {
  return impl_->shared().n_active.load();
}
void Server::drain() {
  impl_->drain();
}
void Server::stop() {
  impl_->stop();
}

}  // namespace hadal::http
