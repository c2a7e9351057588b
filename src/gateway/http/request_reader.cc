#include "gateway/http/request_reader.h"

#include <algorithm>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <fmt/format.h>

namespace hadal::http {

namespace beast = boost::beast::http;

namespace {

using boost::system::error_code;
using View = boost::beast::string_view;

// What is set aside for a body before its bytes come.
constexpr uint64_t kReservedBody = 1 << 20;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

// Beast's grammar, with the parts put where they stay. Fields behind a chunked body (trailers) are
// dropped: whoever sends them could otherwise add headers after the head was judged.
struct RequestReader::Parser final : beast::basic_parser<true> {
  Request request;
  std::string target;
  int version = 0;
  bool in_body = false;

  void on_request_impl(beast::verb, View method, View given, int number, error_code&) override {
    request.method.assign(method.data(), method.size());
    target.assign(given.data(), given.size());
    version = number;
    request.headers.reserve(8);
  }
  void on_response_impl(int, View, int, error_code&) override {}
  void on_field_impl(beast::field, View name, View value, error_code&) override {
    if (in_body) return;
    request.headers.push_back({lower_case({name.data(), name.size()}), std::string(value)});
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>& length, error_code&) override {
    in_body = true;
    if (length) request.body.reserve(std::min(*length, kReservedBody));
  }
  size_t on_body_impl(View bytes, error_code&) override {
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(uint64_t, View, error_code&) override { in_body = true; }
  size_t on_chunk_body_impl(uint64_t, View bytes, error_code& error) override {
    return on_body_impl(bytes, error);
  }
  void on_finish_impl(error_code&) override {}

  bool has(std::string_view name) const { return count(name) > 0; }
  std::ptrdiff_t count(std::string_view name) const {
    return std::count_if(request.headers.begin(), request.headers.end(),
                         [&](const Header& header) { return header.name == name; });
  }
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
      parser_->header_limit(static_cast<uint32_t>(max_header_bytes_));
      parser_->body_limit(max_body_bytes_);
    }
    error_code error;
    n_used +=
        parser_->put(boost::asio::buffer(bytes.data() + n_used, bytes.size() - n_used), error);
    if (error == beast::error::need_more) return State::kNeedMore;
    if (error) return fail_on(error);
    if (parser_->is_header_done() && !head_reported_) {
      head_reported_ = true;
      if (!read_head()) return State::kFailed;
      // A body that is here already is read at once.
      const auto length = parser_->content_length();
      const bool is_here = length && *length <= bytes.size() - n_used;
      if (!parser_->is_done() && !is_here) return State::kHeadDone;
    }
    if (parser_->is_done()) return State::kComplete;
  }
  return State::kNeedMore;
}

RequestReader::State RequestReader::fail_on(const error_code& error) {
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
  return fail(400, fmt::format("this is no well-formed HTTP/1.1 request ({})", error.message()));
}

bool RequestReader::read_head() {
  if (parser_->version != 10 && parser_->version != 11) {
    fail(505, "only HTTP/1.0 and HTTP/1.1 are served here");
    return false;
  }
  http10_ = parser_->version == 10;
  keep_alive_ = parser_->keep_alive();
  if (!http10_ && parser_->count("host") != 1) {
    fail(400, "an HTTP/1.1 request needs exactly one Host header");
    return false;
  }
  if (parser_->has("transfer-encoding") && !read_transfer_encoding()) return false;
  const std::string coding = lower_case(parser_->request.header("content-encoding"));
  if (!coding.empty() && coding != "identity") {
    fail(415, "a body with a Content-Encoding is not read here; send it as it is");
    return false;
  }
  std::string_view target = parser_->target;
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

// A body whose end is told in two ways, or in a way that is not understood here, is how requests
// are smuggled past a proxy: what one takes for a body the other takes for a request (RFC 9112, 6.1
// and 6.3).
bool RequestReader::read_transfer_encoding() {
  if (parser_->has("content-length")) {
    fail(400, "Transfer-Encoding and Content-Length exclude each other");
  } else if (http10_) {
    fail(400, "HTTP/1.0 has no Transfer-Encoding; send a Content-Length");
  } else if (lower_case(parser_->request.header("transfer-encoding")) != "chunked") {
    fail(501, "of transfer encodings only chunked is read here, alone");
  } else {
    return true;
  }
  return false;
}

Request RequestReader::take() {
  Request request = std::move(parser_->request);
  request.path = std::move(path_);
  request.query = std::move(query_);
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
  return !http10_ && lower_case(parser_->request.header("expect")) == "100-continue";
}

uint64_t RequestReader::body_length_hint() const {
  const auto length = parser_ && head_reported_ ? parser_->content_length() : boost::none;
  return length ? *length : 0;
}

size_t RequestReader::body_bytes() const {
  return parser_ ? parser_->request.body.size() : 0;
}

}  // namespace hadal::http
