#include <array>
#include <cerrno>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "base/core/check.h"
#include "gateway/http/socket_poll.h"
#include "gateway/http/transport.h"

namespace hadal::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

error_code last_error() {
  return {errno, boost::system::system_category()};
}

// Reads when the socket is ready instead of holding a read buffer: an idle connection costs no
// buffer at all. The bytes pass through one scratch buffer of the thread.
//
// Callbacks keep their connection, and with it this transport, alive: each is held by a local of
// the function that calls it until nothing of `this` is touched any more.
class PlainTransport final : public Transport, private SocketPoll::Listener {
 public:
  PlainTransport(int socket, asio::io_context& context, SocketPoll& poll)
      : context_(context), poll_(poll), socket_(socket) {}
  ~PlainTransport() override { PlainTransport::close(); }

  void handshake(Done done) override {
    registered_ = poll_.add(socket_, *this);
    done(registered_ ? error_code() : last_error());
  }

  void read(Bytes done) override {
    HADAL_CHECK(!on_bytes_, "two reads of one connection");
    if (!readable_) {
      on_bytes_ = std::move(done);
      return;
    }
    // After the others' turn: who sends without end must not keep the loop.
    asio::post(context_, [this, done = std::move(done)]() mutable {
      if (socket_ < 0) return;
      on_bytes_ = std::move(done);
      Bytes called;
      read_ready(called);
    });
  }

  void write(std::string_view bytes, Done done) override {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n >= 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno == EAGAIN) {
        rest_ = bytes;
        on_written_ = std::move(done);
        return;
      } else if (errno != EINTR) {
        done(last_error());
        return;
      }
    }
    done({});
  }

  void close() override {
    if (socket_ < 0) return;
    if (registered_) poll_.remove(socket_, *this);
    ::shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
    socket_ = -1;
    // What they hold may be the last to hold the connection, which is closing.
    const Bytes forgotten = std::exchange(on_bytes_, nullptr);
    const Done unwritten = std::exchange(on_written_, nullptr);
  }

 private:
  void on_ready(uint32_t events) override {
    constexpr uint32_t kGone = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    if ((events & kGone) != 0) gone_ = true;
    if ((events & (EPOLLIN | kGone)) != 0) readable_ = true;
    Bytes read_called;
    Done write_called;
    if (on_written_ && (events & (EPOLLOUT | kGone)) != 0) {
      write_called = std::exchange(on_written_, nullptr);
      write(std::exchange(rest_, {}), write_called);
    }
    read_ready(read_called);
  }

  // Calls the reader if there is something to read; `called` keeps what was called.
  void read_ready(Bytes& called) {
    thread_local std::array<char, 64 << 10> scratch;
    if (!readable_ || !on_bytes_) return;
    ssize_t n = 0;
    do {
      n = ::recv(socket_, scratch.data(), scratch.size(), 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
      readable_ = false;
      return;
    }
    const error_code error = n < 0 ? last_error() : error_code();
    // Less than there was room for: all is read, and news will be told. The end of the stream is
    // told once, maybe together with its last bytes.
    readable_ = gone_ || n <= 0 || static_cast<size_t>(n) == scratch.size();
    called = std::exchange(on_bytes_, nullptr);
    called(error, std::string_view(scratch.data(), n < 0 ? 0 : static_cast<size_t>(n)));
  }

  asio::io_context& context_;
  SocketPoll& poll_;
  int socket_;  // -1: closed
  bool registered_ = false;
  bool readable_ = false;  // maybe
  bool gone_ = false;      // the other end sends no more
  Bytes on_bytes_;
  Done on_written_;
  std::string_view rest_;  // that on_written_ waits for
};

}  // namespace

std::unique_ptr<Transport> make_plain_transport(asio::ip::tcp::socket socket,
                                                asio::io_context& context, SocketPoll& poll) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  const int descriptor = socket.release(ignored);  // out of the reactor, which would be told too
  return std::make_unique<PlainTransport>(descriptor, context, poll);
}

}  // namespace hadal::http
