#include "gateway/admin/otlp.h"

#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <netdb.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace hadal::admin {
namespace {

using nlohmann::json;

json value_json(const metrics::Span::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return {{"stringValue", *text}};
  if (const auto* number = std::get_if<int64_t>(&value))
    return {{"intValue", fmt::format("{}", *number)}};
  return {{"doubleValue", std::get<double>(value)}};
}

std::string unix_nanoseconds(std::chrono::system_clock::time_point at) {
  return fmt::format("{}", std::chrono::nanoseconds(at.time_since_epoch()).count());
}

json span_json(const metrics::Span& span) {
  json out = {
      {"traceId", metrics::hex16(span.context.trace_high) + metrics::hex16(span.context.trace_low)},
      {"spanId", metrics::hex16(span.context.span)},
      {"name", span.name},
      {"kind", static_cast<int>(span.kind)},
      {"startTimeUnixNano", unix_nanoseconds(span.begin)},
      {"endTimeUnixNano", unix_nanoseconds(span.end)},
      {"attributes", json::array()}};
  if (span.parent != 0) out["parentSpanId"] = metrics::hex16(span.parent);
  for (const auto& [key, value] : span.attributes)
    out["attributes"].push_back({{"key", key}, {"value", value_json(value)}});
  if (span.failed) out["status"] = {{"code", 2}, {"message", span.error}};
  return out;
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  bool ready(short events, int timeout_ms) const {
    pollfd poll_fd{fd_, events, 0};
    return poll(&poll_fd, 1, timeout_ms) == 1;
  }

 private:
  const int fd_;
};

core::Error not_sent(const OtlpEndpoint& endpoint, std::string_view why) {
  return {core::Code::kIo, fmt::format("spans could not be sent to http://{}:{}{}: {}",
                                       endpoint.host, endpoint.port, endpoint.path, why)};
}

std::unique_ptr<Socket> connect_to(const OtlpEndpoint& endpoint, int timeout_ms) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &found) != 0)
    return nullptr;
  std::unique_ptr<Socket> connected;
  for (const addrinfo* at = found; at != nullptr && connected == nullptr; at = at->ai_next) {
    auto made = std::make_unique<Socket>(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (made->fd() < 0) continue;
    if (connect(made->fd(), at->ai_addr, at->ai_addrlen) != 0 &&
        (errno != EINPROGRESS || !made->ready(POLLOUT, timeout_ms)))
      continue;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(made->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) connected = std::move(made);
  }
  freeaddrinfo(found);
  return connected;
}

}  // namespace

std::string otlp_json(std::span<const metrics::Span> spans, std::string_view version) {
  json list = json::array();
  for (const metrics::Span& span : spans) list.push_back(span_json(span));
  const json service = {{"key", "service.name"}, {"value", {{"stringValue", "hadal"}}}};
  const json release = {{"key", "service.version"}, {"value", {{"stringValue", version}}}};
  const json scope = {{"scope", {{"name", "hadal"}}}, {"spans", std::move(list)}};
  const json resource = {{"resource", {{"attributes", {service, release}}}},
                         {"scopeSpans", json::array({scope})}};
  // A model name comes from a client: what is not UTF-8 is replaced.
  return json{{"resourceSpans", json::array({resource})}}.dump(-1, ' ', false,
                                                               json::error_handler_t::replace);
}

core::Result<OtlpEndpoint> parse_otlp_endpoint(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const core::Error wrong{core::Code::kInvalidRequest,
                          fmt::format("--otlp.endpoint {}: give http://HOST[:PORT][/PATH], such as "
                                      "http://127.0.0.1:4318",
                                      url),
                          "otlp.endpoint"};
  if (!url.starts_with(kScheme)) return wrong;
  url.remove_prefix(kScheme.size());
  const size_t slash = std::min(url.find('/'), url.size());
  OtlpEndpoint endpoint{std::string(url.substr(0, slash)), "4318", std::string(url.substr(slash))};
  if (endpoint.path.size() <= 1) endpoint.path = "/v1/traces";
  const size_t bracket = endpoint.host.rfind(']');  // [::1]:4318
  const size_t colon = endpoint.host.rfind(':');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    endpoint.port = endpoint.host.substr(colon + 1);
    endpoint.host.resize(colon);
  }
  if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']'))
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  const bool digits = !endpoint.port.empty() && endpoint.port.size() <= 5 &&
                      endpoint.port.find_first_not_of("0123456789") == std::string::npos;
  if (endpoint.host.empty() || !digits || url.find_first_of(" \r\n\t") != std::string_view::npos)
    return wrong;
  return endpoint;
}

core::Status post_otlp(const OtlpEndpoint& endpoint, std::string_view body, int timeout_ms) {
  const auto socket = connect_to(endpoint, timeout_ms);
  if (socket == nullptr) return not_sent(endpoint, "no connection");
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\nConnection: close\r\n\r\n{}",
      endpoint.path, endpoint.host, endpoint.port, body.size(), body);
  for (std::string_view rest = request; !rest.empty();) {
    if (!socket->ready(POLLOUT, timeout_ms)) return not_sent(endpoint, "it takes no bytes");
    const ssize_t n = send(socket->fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return not_sent(endpoint, std::strerror(errno));
    if (n > 0) rest.remove_prefix(static_cast<size_t>(n));
  }
  // The status line is all that matters.
  std::string answer;
  while (answer.find("\r\n") == std::string::npos && answer.size() < 4096) {
    if (!socket->ready(POLLIN, timeout_ms)) return not_sent(endpoint, "it does not answer");
    char buffer[1024];
    const ssize_t n = recv(socket->fd(), buffer, sizeof buffer, 0);
    if (n <= 0) return not_sent(endpoint, "it closed the connection");
    answer.append(buffer, static_cast<size_t>(n));
  }
  if (answer.starts_with("HTTP/1.") && answer.size() > 9 && answer[9] == '2') return {};
  return not_sent(endpoint, answer.substr(0, answer.find("\r\n")));
}

}  // namespace hadal::admin
