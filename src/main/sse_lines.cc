#include "main/sse_lines.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace hadal::main {

bool SseLines::fail(std::string what) {
  problem_ = std::move(what);
  return false;
}

bool SseLines::take_line(std::string_view& bytes) {
  const size_t end = bytes.find('\n');
  const bool whole = end != std::string_view::npos;
  const size_t n = whole ? end + 1 : bytes.size();
  pending_.append(bytes.substr(0, n));
  bytes.remove_prefix(n);
  return whole;
}

bool SseLines::read_head() {
  if (!pending_.starts_with("HTTP/1.1 200 "))
    return fail("the answer is " + pending_.substr(0, std::min<size_t>(pending_.find('\r'), 200)));
  if (pending_.find("Transfer-Encoding: chunked") == std::string::npos)
    return fail("the answer is not a stream");
  state_ = State::kSize;
  return true;
}

bool SseLines::read_size() {
  const auto [end, error] =
      std::from_chars(pending_.data(), pending_.data() + pending_.size(), left_, 16);
  if (error != std::errc() || (*end != '\r' && *end != ';'))
    return fail("a chunk begins with " + pending_.substr(0, 40));
  state_ = left_ == 0 ? State::kDone : State::kData;
  return true;
}

bool SseLines::split_lines(std::string_view data, const OnLine& on_line) {
  while (!data.empty()) {
    const size_t end = data.find('\n');
    if (end == std::string_view::npos) {
      rest_.append(data);
      return rest_.size() <= kMaxLine || fail("a line has no end");
    }
    if (rest_.empty()) {
      on_line(data.substr(0, end));
    } else {
      rest_.append(data.substr(0, end));
      on_line(rest_);
      rest_.clear();
    }
    data.remove_prefix(end + 1);
  }
  return true;
}

bool SseLines::feed(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    switch (state_) {
      case State::kHead: {
        const size_t before = pending_.size();
        if (!take_line(bytes)) return pending_.size() <= kMaxLine || fail("a head has no end");
        // The empty line that ends the head.
        if (pending_.size() - before <= 2 && pending_.ends_with("\n\r\n")) {
          if (!read_head()) return false;
          pending_.clear();
        }
        break;
      }
      case State::kSize:
        if (!take_line(bytes)) return pending_.size() <= kMaxLine || fail("a size has no end");
        if (!read_size()) return false;
        pending_.clear();
        break;
      case State::kData: {
        const auto n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
        if (!split_lines(bytes.substr(0, n), on_line)) return false;
        bytes.remove_prefix(n);
        left_ -= n;
        if (left_ == 0) state_ = State::kDataEnd;
        break;
      }
      case State::kDataEnd:
        if (!take_line(bytes)) return true;
        if (pending_ != "\r\n") return fail("a chunk is longer than it says");
        pending_.clear();
        state_ = State::kSize;
        break;
      case State::kDone:
        return true;  // the trailer's end
    }
  }
  return true;
}

}  // namespace hadal::main
