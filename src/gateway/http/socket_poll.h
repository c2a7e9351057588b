#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/epoll.h>

namespace hadal::http {

// Tells the sockets of one event loop when they are ready. Each is registered once, for changes
// only (edge-triggered); Asio's own reactor asks the kernel anew for each wait, which is a system
// call a request. One wait of the loop serves all sockets that are ready by then.
//
// Its loop's thread only.
class SocketPoll {
 public:
  class Listener {
   public:
    // `events`: EPOLLIN and the like. After it the socket may be readable or writable once more; it
    // is told again only when that has ceased and begins anew.
    virtual void on_ready(uint32_t events) = 0;

   protected:
    ~Listener() = default;
  };

  // `after_all` is called when all that were ready have been told.
  SocketPoll(boost::asio::io_context& context, std::function<void()> after_all);

  // False: the kernel has no room for it. `listener` must be removed before it ends.
  bool add(int socket, Listener& listener);
  void remove(int socket, Listener& listener);

 private:
  void wait();
  void tell_ready();

  boost::asio::posix::stream_descriptor epoll_;
  const std::function<void()> after_all_;
  std::array<epoll_event, 128> events_;
  int n_events_ = 0;  // of events_, while they are told
};

}  // namespace hadal::http
