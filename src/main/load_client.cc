#include "main/load_client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace hadal::main {
namespace {

using Clock = std::chrono::steady_clock;

core::Error io_error(std::string_view what) {
  return {core::Code::kIo, fmt::format("{}: {}", what, std::strerror(errno))};
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint32_t microseconds(Clock::duration duration) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(us, 0, UINT32_MAX));
}

}  // namespace

LoadClient::~LoadClient() {
  for (const auto& stream : streams_) {
    if (stream->fd >= 0) close(stream->fd);
  }
  if (epoll_ >= 0) close(epoll_);
}

std::string LoadClient::make_request() const {
  // Long enough to play past the window, with some slack for a slow start.
  const double opening_s = plan_.n_streams / static_cast<double>(plan_.opens_per_second);
  const double play_s =
      2 * opening_s + std::chrono::duration<double>(plan_.settle + plan_.window).count() + 10;
  const auto n_words =
      static_cast<size_t>(play_s * 1000 / std::max(1u, plan_.pace_ms) + 1) * plan_.step;
  std::string text;
  for (size_t i = 0; i < n_words; ++i) text += "word ";
  const std::string body = fmt::format(
      R"({{"model":"deepseek-flash","stream":true,"thinking":{{"type":"disabled"}},"max_tokens":{},)"
      R"("messages":[{{"role":"user","content":"load"}}],)"
      R"("hadal":{{"event_times":true,"script":{{"text":"{}","step":{},"pace_ms":{}}}}}}})",
      n_words, text, plan_.step, plan_.pace_ms);
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n"
      "{}Content-Length: {}\r\n\r\n{}",
      plan_.host, plan_.port,
      plan_.api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", plan_.api_key),
      body.size(), body);
}

core::Status LoadClient::open_one(size_t index) {
  auto stream = std::make_unique<Stream>();
  stream->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (stream->fd < 0) return io_error("cannot open a socket (ulimit -n)");
  const int on = 1;
  setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(plan_.port);
  if (inet_pton(AF_INET, plan_.host.c_str(), &address.sin_addr) != 1)
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("--host {}: give an IPv4 address", plan_.host)};
  if (connect(stream->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS)
    return io_error("cannot connect");
  epoll_event event{};
  event.events = EPOLLOUT | EPOLLIN;
  event.data.u64 = index;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, stream->fd, &event);
  streams_.push_back(std::move(stream));
  return {};
}

core::Status LoadClient::write_request(Stream& stream) {
  const std::string_view rest = std::string_view(request_).substr(stream.n_sent);
  const ssize_t n = send(stream.fd, rest.data(), rest.size(), MSG_NOSIGNAL);
  if (n < 0 && errno == EAGAIN) return {};
  if (n < 0) return io_error("cannot send a request");
  stream.n_sent += static_cast<size_t>(n);
  stream.sent_at = Clock::now();
  return {};
}

void LoadClient::on_line(Stream& stream, std::string_view line, Clock::time_point now) {
  constexpr std::string_view kTime = ": t=";
  constexpr std::string_view kData = "data: ";
  if (line.starts_with(kTime)) {
    int64_t ns = 0;
    std::from_chars(line.data() + kTime.size(), line.data() + line.size(), ns);
    if (counting_)
      report_.delays_us.push_back(
          microseconds(now - Clock::time_point(std::chrono::nanoseconds(ns))));
    if (!stream.has_event) {
      stream.has_event = true;
      ++n_begun_;
      report_.first_us.push_back(microseconds(now - stream.sent_at));
    }
  } else if (counting_ && line.starts_with(kData)) {
    ++report_.n_events;
  }
}

core::Status LoadClient::read_events(Stream& stream) {
  static std::array<char, 256 << 10> buffer;
  const ssize_t n = recv(stream.fd, buffer.data(), buffer.size(), 0);
  if (n < 0 && errno == EAGAIN) return {};
  if (n < 0) return io_error("cannot read a stream");
  if (n == 0) return core::Error{core::Code::kInternal, "the server closed a stream"};
  const Clock::time_point now = Clock::now();
  if (counting_) report_.n_bytes += static_cast<uint64_t>(n);
  const std::string_view bytes(buffer.data(), static_cast<size_t>(n));
  if (!stream.lines.feed(bytes, [&](std::string_view line) { on_line(stream, line, now); }))
    return core::Error{core::Code::kInternal, stream.lines.problem()};
  if (stream.lines.done())
    return core::Error{core::Code::kInternal, "a stream ended before the window did"};
  return {};
}

core::Result<LoadReport> LoadClient::run(const AtEdge& at_begin, const AtEdge& at_end) {
  request_ = make_request();
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  const Clock::time_point began = Clock::now();
  Clock::time_point window_begins = Clock::time_point::max(), window_ends = window_begins;
  double cpu_before = 0;
  std::array<epoll_event, 512> events;
  while (true) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - began).count();
    while (streams_.size() < plan_.n_streams &&
           static_cast<double>(streams_.size()) < seconds * plan_.opens_per_second) {
      HADAL_TRY_VOID(open_one(streams_.size()));
    }
    if (window_begins == Clock::time_point::max()) {
      if (n_begun_ == plan_.n_streams) {
        window_begins = now + plan_.settle;
        window_ends = window_begins + plan_.window;
      } else if (seconds > 60 + 2.0 * plan_.n_streams / plan_.opens_per_second) {
        return core::Error{core::Code::kInternal,
                           fmt::format("only {} of {} streams had an event after {:.0f} s",
                                       n_begun_, plan_.n_streams, seconds)};
      }
    } else if (!counting_ && now >= window_begins) {
      at_begin();
      cpu_before = cpu_seconds();
      window_begins = Clock::now();
      window_ends = window_begins + plan_.window;
      counting_ = true;
    } else if (counting_ && now >= window_ends) {
      report_.client_cpu_s = cpu_seconds() - cpu_before;
      report_.window_s = std::chrono::duration<double>(now - window_begins).count();
      break;
    }
    const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 1);
    for (int i = 0; i < n; ++i) {
      Stream& stream = *streams_[events[static_cast<size_t>(i)].data.u64];
      if (stream.n_sent < request_.size()) {
        HADAL_TRY_VOID(write_request(stream));
        if (stream.n_sent == request_.size()) {
          epoll_event event = events[static_cast<size_t>(i)];
          event.events = EPOLLIN;
          epoll_ctl(epoll_, EPOLL_CTL_MOD, stream.fd, &event);
        }
      }
      HADAL_TRY_VOID(read_events(stream));
    }
  }
  at_end();
  std::sort(report_.delays_us.begin(), report_.delays_us.end());
  std::sort(report_.first_us.begin(), report_.first_us.end());
  return std::move(report_);
}

}  // namespace hadal::main
