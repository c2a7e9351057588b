#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>

namespace hadal::http {

class SocketPoll;

// The bytes of one connection: plain TCP, or TLS over it. One read and one write at a time; its io
// thread only.
class Transport {
 public:
  using Done = std::function<void(boost::system::error_code)>;
  using Bytes = std::function<void(boost::system::error_code, std::string_view)>;

  virtual ~Transport() = default;
  virtual void handshake(Done done) = 0;
  virtual void read(Bytes done) = 0;  // the view is valid during the call of `done` only
  // Writes all of `bytes`, which must stay valid until `done`. `done` may be called before write()
  // returns.
  virtual void write(std::string_view bytes, Done done) = 0;
  virtual void close() = 0;  // pending operations end with an error or are forgotten
};

// `context` and `poll` are those of the thread that will use it, and outlive it.
std::unique_ptr<Transport> make_plain_transport(boost::asio::ip::tcp::socket socket,
                                                boost::asio::io_context& context, SocketPoll& poll);
std::unique_ptr<Transport> make_tls_transport(boost::asio::ip::tcp::socket socket,
                                              boost::asio::ssl::context& context);

}  // namespace hadal::http
