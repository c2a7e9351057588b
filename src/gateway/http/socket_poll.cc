#include "gateway/http/socket_poll.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/core/check.h"

namespace hadal::http {

SocketPoll::SocketPoll(boost::asio::io_context& context, std::function<void()> after_all)
    : epoll_(context), after_all_(std::move(after_all)) {
  const int descriptor = ::epoll_create1(EPOLL_CLOEXEC);
  HADAL_CHECK(descriptor >= 0, fmt::format("epoll_create1: errno {}", errno));
  epoll_.assign(descriptor);
  wait();
}

bool SocketPoll::add(int socket, Listener& listener) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &listener;
  return ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, socket, &event) == 0;
}

void SocketPoll::remove(int socket, Listener& listener) {
  epoll_event unused{};
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, socket, &unused);
  for (int i = 0; i < n_events_; ++i) {
    epoll_event& event = events_[static_cast<size_t>(i)];
    if (event.data.ptr == &listener) event.data.ptr = nullptr;
  }
}

void SocketPoll::wait() {
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this](boost::system::error_code error) {
                      if (error) return;
                      tell_ready();
                      wait();
                    });
}

void SocketPoll::tell_ready() {
  n_events_ =
      ::epoll_wait(epoll_.native_handle(), events_.data(), static_cast<int>(events_.size()), 0);
  for (int i = 0; i < n_events_; ++i) {
    const epoll_event& event = events_[static_cast<size_t>(i)];
    if (event.data.ptr != nullptr) static_cast<Listener*>(event.data.ptr)->on_ready(event.events);
  }
  n_events_ = 0;
  after_all_();
}

}  // namespace hadal::http
