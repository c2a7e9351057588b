#include <array>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include "gateway/http/transport.h"

namespace hadal::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class TlsTransport : public Transport {
 public:
  TlsTransport(asio::ip::tcp::socket socket, asio::ssl::context& context)
      : stream_(std::move(socket), context) {
    error_code ignored;
    stream_.next_layer().set_option(asio::ip::tcp::no_delay(true), ignored);
  }

  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](error_code error) { done(error); });
  }

  void read(Bytes done) override {
    stream_.async_read_some(asio::buffer(buffer_),
                            [this, done = std::move(done)](error_code error, size_t n) {
                              done(error, std::string_view(buffer_.data(), n));
                            });
  }

  void write(std::string_view bytes, Done done) override {
    asio::async_write(stream_, asio::buffer(bytes.data(), bytes.size()),
                      [done = std::move(done)](error_code error, size_t) { done(error); });
  }

  void close() override {
    // No close_notify: HTTP's own framing tells a cut body from a whole one, and a silent peer must
    // not hold us.
    error_code ignored;
    stream_.next_layer().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.next_layer().close(ignored);
  }

 private:
  asio::ssl::stream<asio::ip::tcp::socket> stream_;
  std::array<char, 4096> buffer_;
};

}  // namespace

std::unique_ptr<Transport> make_tls_transport(asio::ip::tcp::socket socket,
                                              asio::ssl::context& context) {
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

}  // namespace hadal::http
