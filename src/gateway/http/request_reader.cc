#include "gateway/http/request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>

namespace hadal::http {

namespace beast = boost::beast::http;

struct RequestReader::Parser {
  beast::request_parser<beast::string_body> http;
};

RequestReader::RequestReader(size_t max_header_bytes, size_t max_body_bytes)
    : max_header_bytes_(max_header_bytes), max_body_bytes_(max_body_bytes) {}

RequestReader::~RequestReader() = default;

RequestReader::State RequestReader::fail(int status, std::string message) {
  status_ = status;
  message_ = std::move(message);
  return State::kFailed;
}

RequestReader::State RequestReader::feed(std::string_view bytes, size_t& n_used) {
  n_used = 0;
  if (status_ != 0) return State::kFailed;
  while (n_used < bytes.size()) {
    if (!parser_) {
      // Empty lines before a request line are skipped (RFC 9112, 2.2).
      if (bytes[n_used] == '\r' || bytes[n_used] == '\n') {
        ++n_used;
        continue;
      }
      parser_ = std::make_unique<Parser>();
      parser_->http.header_limit(static_cast<uint32_t>(max_header_bytes_));
      parser_->http.body_limit(max_body_bytes_);
    }
    boost::system::error_code error;
    n_used +=
        parser_->http.put(boost::asio::buffer(bytes.data() + n_used, bytes.size() - n_used), error);
    if (error == beast::error::need_more) return State::kNeedMore;
    if (error == beast::error::header_limit) {
      return fail(
          431,
          fmt::format("the request's head is larger than {} bytes; send fewer or shorter headers",
                      max_header_bytes_));
    }
    if (error == beast::error::body_limit) {
      return fail(413, fmt::format("the request's body is larger than the limit of {} bytes",
                                   max_body_bytes_));
    }
    if (error == beast::error::bad_version)
      return fail(505, "only HTTP/1.0 and HTTP/1.1 are served here");
    if (error)
      return fail(400,
                  fmt::format("this is no well-formed HTTP/1.1 request ({})", error.message()));
    if (parser_->http.is_header_done() && !head_reported_) {
      head_reported_ = true;
      if (!read_head()) return State::kFailed;
      if (!parser_->http.is_done()) return State::kHeadDone;
    }
    if (parser_->http.is_done()) return State::kComplete;
  }
  return State::kNeedMore;
}

bool RequestReader::read_head() {
  const auto& message = parser_->http.get();
  if (message.version() != 10 && message.version() != 11) {
    fail(505, "only HTTP/1.0 and HTTP/1.1 are served here");
    return false;
  }
  http10_ = message.version() == 10;
  keep_alive_ = message.keep_alive();
  const auto hosts = message.equal_range(beast::field::host);
  if (!http10_ && std::distance(hosts.first, hosts.second) != 1) {
    fail(400, "an HTTP/1.1 request needs exactly one Host header");
    return false;
  }
  // Both length rules at once are how requests are smuggled past a proxy (RFC 9112, 6.3).
  if (message.find(beast::field::transfer_encoding) != message.end() &&
      message.find(beast::field::content_length) != message.end()) {
    fail(400, "Transfer-Encoding and Content-Length exclude each other");
    return false;
  }
  std::string_view target(message.target().data(), message.target().size());
  if (target.starts_with("http://") ||
      target.starts_with("https://")) {  // absolute form (RFC 9112, 3.2.2)
    const size_t slash = target.find('/', target.find("://") + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  const size_t question = std::min(target.find('?'), target.size());
  auto path = percent_decoded(target.substr(0, question));
  if (!path || path->empty() || ((*path)[0] != '/' && *path != "*")) {
    fail(400, "the request's target is no path");
    return false;
  }
  path_ = *std::move(path);
  query_ = std::string(question < target.size() ? target.substr(question + 1) : std::string_view());
  return true;
}

Request RequestReader::take() {
  auto message = parser_->http.release();
  Request request;
  request.method = std::string(message.method_string());
  request.path = std::move(path_);
  request.query = std::move(query_);
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    request.headers.push_back({std::move(name), std::string(field.value())});
  }
  request.body = std::move(message.body());
  parser_.reset();
  head_reported_ = false;
  path_.clear();
  query_.clear();
  return request;
}

bool RequestReader::in_progress() const {
  return parser_ != nullptr;
}
bool RequestReader::head_done() const {
  return head_reported_;
}
bool RequestReader::keep_alive() const {
  return keep_alive_;
}
bool RequestReader::is_http10() const {
  return http10_;
}

bool RequestReader::expects_continue() const {
  const auto& message = parser_->http.get();
  return !http10_ && boost::beast::iequals(message[beast::field::expect], "100-continue");
}

uint64_t RequestReader::body_length_hint() const {
  const auto length = parser_ ? parser_->http.content_length() : boost::none;
  return length ? *length : 0;
}

size_t RequestReader::body_bytes() const {
  return parser_ ? parser_->http.get().body().size() : 0;
}

}  // namespace hadal::http
