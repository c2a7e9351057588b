#include "gateway/http/exchange.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <utility>

namespace hadal::http {
namespace {

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A header value must not open a second header.
void append_clean(std::string& out, std::string_view text) {
  const auto clean = [](char c) { return c != '\r' && c != '\n' && c != '\0'; };
  if (std::all_of(text.begin(), text.end(), clean)) {
    out += text;
    return;
  }
  std::copy_if(text.begin(), text.end(), std::back_inserter(out), clean);
}

}  // namespace

Exchange::Exchange(Request request, Wake wake, bool keep_alive, bool is_http10, size_t max_pending,
                   std::string extra_headers)
    : request_(std::move(request)),
      wake_(std::move(wake)),
      http10_(is_http10),
      max_pending_(max_pending),
      extra_headers_(std::move(extra_headers)),
      keep_alive_(keep_alive) {}

void Exchange::append_head(const Response& response, bool streamed) {
  status_ = response.status;
  if (streamed && http10_) keep_alive_ = false;  // the end of the body is the end of the connection
  out_ += "HTTP/1.1 ";
  append_decimal(out_, static_cast<uint64_t>(response.status));
  out_ += ' ';
  out_ += status_text(response.status);
  out_ += "\r\n";
  if (!response.content_type.empty()) {
    out_ += "Content-Type: ";
    append_clean(out_, response.content_type);
    out_ += "\r\n";
  }
  const bool no_body = response.status == 204 || response.status == 304;
  if (streamed) {
    out_ += http10_ ? "Cache-Control: no-cache\r\n"
                    : "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n";
  } else if (!no_body) {
    out_ += "Content-Length: ";
    append_decimal(out_, response.body.size());
    out_ += "\r\n";
  }
  out_ += "X-Request-Id: ";
  append_clean(out_, request_.request_id);
  out_ += "\r\n";
  for (const Header& header : response.headers) {
    append_clean(out_, header.name);
    out_ += ": ";
    append_clean(out_, header.value);
    out_ += "\r\n";
  }
  out_ += extra_headers_;
  if (!keep_alive_) {
    out_ += "Connection: close\r\n";
  } else if (http10_) {
    out_ += "Connection: keep-alive\r\n";
  }
  out_ += "\r\n";
}

void Exchange::append_chunk(std::string_view bytes) {
  if (bytes.empty()) return;
  if (http10_) {
    out_ += bytes;
  } else {
    append_hex(out_, bytes.size());
    out_ += "\r\n";
    out_ += bytes;
    out_ += "\r\n";
  }
}

void Exchange::respond(Response response) {
  {
    const std::lock_guard lock(mutex_);
    if (status_ != 0 || closed_) return;
    append_head(response, false);
    if (request_.method != "HEAD" && response.status != 204 && response.status != 304)
      out_ += response.body;
    finished_ = true;
    if (woken_) return;
    woken_ = true;
  }
  wake_();
}

void Exchange::start_stream(Response response) {
  {
    const std::lock_guard lock(mutex_);
    if (status_ != 0 || closed_) return;
    streaming_ = true;
    event_stream_ = response.content_type.starts_with("text/event-stream");
    append_head(response, true);
    append_chunk(response.body);
    last_output_ms_ = now_ms();
    if (woken_) return;
    woken_ = true;
  }
  wake_();
}

bool Exchange::has_room() const {
  const std::lock_guard lock(mutex_);
  return closed_ || out_.size() < max_pending_ / 2;
}

Push Exchange::push(std::string_view bytes) {
  return push_up_to(bytes, max_pending_);
}
Push Exchange::push_unbounded(std::string_view bytes) {
  return push_up_to(bytes, std::numeric_limits<size_t>::max());
}

Push Exchange::push_up_to(std::string_view bytes, size_t max_pending) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_ || !streaming_) return Push::kClosed;
    // One frame larger than the limit still passes when nothing is pending: it could never be sent
    // otherwise.
    if (!out_.empty() && bytes.size() > max_pending - std::min(max_pending, out_.size()))
      return Push::kFull;
    append_chunk(bytes);
    if (woken_) return Push::kTaken;
    woken_ = true;
  }
  wake_();
  return Push::kTaken;
}

void Exchange::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_ || !streaming_) return;
    finished_ = true;
    if (!http10_) out_ += "0\r\n\r\n";
    if (woken_) return;
    woken_ = true;
  }
  wake_();
}

void Exchange::break_off() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_ || !streaming_) return;
    finished_ = true;
    keep_alive_ = false;
    if (woken_) return;
    woken_ = true;
  }
  wake_();
}

void Exchange::on_closed(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (released_) return;
    if (!closed_) {
      closed_callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

bool Exchange::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

int Exchange::status() const {
  const std::lock_guard lock(mutex_);
  return closed_ && !finished_ ? 499 : status_;
}

bool Exchange::take_output(std::string& out) {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  out.clear();
  out.swap(out_);
  if (!out.empty()) last_output_ms_ = now_ms();
  return finished_;
}

void Exchange::client_gone() {
  std::function<void()> callback;
  bool early = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    early = !finished_;
    out_ = std::string();
    callback = std::exchange(closed_callback_, nullptr);
  }
  if (early && callback) callback();
}

void Exchange::release() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    released_ = true;
    callback = std::exchange(closed_callback_, nullptr);
  }
}

int64_t Exchange::last_output_ms() const {
  const std::lock_guard lock(mutex_);
  return last_output_ms_;
}

bool Exchange::is_streaming() const {
  const std::lock_guard lock(mutex_);
  return streaming_;
}

bool Exchange::keep_alive() const {
  const std::lock_guard lock(mutex_);
  return keep_alive_;
}

void Exchange::push_keep_alive_comment() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_ || !event_stream_ || !out_.empty()) return;
    append_chunk(": keep-alive\n\n");
    if (woken_) return;
    woken_ = true;
  }
  wake_();
}

}  // namespace hadal::http
