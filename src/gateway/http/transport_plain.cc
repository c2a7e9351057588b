#include <array>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include "gateway/http/transport.h"

namespace hadal::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Waits for readiness instead of holding a read buffer: an idle connection costs no buffer at all.
// The bytes pass through one scratch buffer of the thread.
class PlainTransport : public Transport {
 public:
  explicit PlainTransport(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  }

  void handshake(Done done) override { done({}); }

  void read(Bytes done) override {
    socket_.async_wait(asio::ip::tcp::socket::wait_read,
                       [this, done = std::move(done)](error_code error) mutable {
                         if (error) {
                           done(error, {});
                           return;
                         }
                         thread_local std::array<char, 64 << 10> scratch;
                         const size_t n = socket_.read_some(asio::buffer(scratch), error);
                         if (error == asio::error::would_block || error == asio::error::try_again) {
                           read(std::move(done));
                           return;
                         }
                         done(error, std::string_view(scratch.data(), n));
                       });
  }

  void write(std::string_view bytes, Done done) override {
    while (!bytes.empty()) {
      error_code error;
      const size_t n = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error);
      bytes.remove_prefix(n);
      if (error == asio::error::would_block || error == asio::error::try_again) {
        socket_.async_wait(asio::ip::tcp::socket::wait_write,
                           [this, bytes, done = std::move(done)](error_code waited) mutable {
                             if (waited) {
                               done(waited);
                             } else {
                               write(bytes, std::move(done));
                             }
                           });
        return;
      }
      if (error) {
        done(error);
        return;
      }
    }
    done({});
  }

  void close() override {
    error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

 private:
  asio::ip::tcp::socket socket_;
};

}  // namespace

std::unique_ptr<Transport> make_plain_transport(asio::ip::tcp::socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace hadal::http
