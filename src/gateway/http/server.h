#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/http/exchange.h"
#include "gateway/http/message.h"

namespace hadal::http {

struct ServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one
  uint32_t n_threads = 1;
  std::string tls_certificate_file;  // PEM chain; with the key file: TLS
  std::string tls_key_file;
  bool new_traces = false;                // requests without a traceparent begin a trace
  uint32_t trace_percent = 100;           // of those traces, how many are sampled
  std::vector<std::string> cors_origins;  // "*" or exact origins; empty: no CORS headers

  uint32_t max_connections = 20'000;          // beyond: 503 and close
  size_t max_header_bytes = 32 << 10;         // 431
  size_t max_body_bytes = 64 << 20;           // 413
  size_t max_inflight_body_bytes = 1u << 30;  // of all connections together: 503
  size_t max_pending_bytes =
      64 << 10;  // of one streamed answer that its client does not read: Push::kFull

  std::chrono::milliseconds header_timeout{
      10'000};  // from the first byte of a request to the end of its head: 408
  std::chrono::milliseconds body_timeout{30'000};  // without a byte of the body: 408
  std::chrono::milliseconds idle_timeout{75'000};  // of a connection between requests
  std::chrono::milliseconds write_timeout{
      300'000};  // without a byte taken by a client that has bytes to read: closed
  std::chrono::milliseconds keep_alive_comment{5'000};  // SSE comment in a silent event stream
};

// What the server does with requests. Thread: the connection's; handle() must not block: it answers
// at once or hands the exchange on.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // The body of an answer that the server itself gives (400 malformed, 408, 413, 431, 503, 505);
  // `path` may be empty.
  virtual Response error_response(int status, std::string_view path, std::string_view message) = 0;
  // After the answer was written or the client left. Not called for errors before a request was
  // complete.
  virtual void on_done(const Exchange& exchange, std::chrono::microseconds took) = 0;
};

// An HTTP/1.1 server over plain TCP or TLS. It knows no JSON and no route.
class Server {
 public:
  // Binds and listens. Errors (kIo): the address in use, a certificate that cannot be read; the
  // message says which.
  static core::Result<std::unique_ptr<Server>> listen(const ServerConfig& config, Handler& handler);
  ~Server();  // stops

  void start();           // starts the threads
  uint16_t port() const;  // the bound port
  size_t n_connections() const;
  size_t n_active() const;  // requests being answered
  void drain();  // accepts no more, closes idle connections, answers with Connection: close
  void stop();   // closes everything and joins the threads

  class Impl;

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hadal::http
