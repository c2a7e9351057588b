#include "gateway/fetch/reply_reader.h"

#include <algorithm>
#include <charconv>

namespace hadal::fetch {
namespace {

constexpr size_t kMaxHeadBytes = 64u << 10;
constexpr size_t kMaxLineBytes = 4096;  // of a chunk's size or a trailer

bool same_name(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() &&
         std::equal(a.begin(), a.end(), lower.begin(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y; });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool ReplyReader::wrong(std::string_view problem) {
  state_ = State::kWrong;
  problem_ = problem;
  return false;
}

std::string_view ReplyReader::header(std::string_view name) const {
  std::string_view rest = head_;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find("\r\n"), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 2, rest.size()));
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && same_name(line.substr(0, colon), name)) {
      return trim(line.substr(colon + 1));
    }
  }
  return {};
}

bool ReplyReader::read_head() {
  const size_t end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos || end > kMaxHeadBytes) return wrong("its head has more than 64 KB");
  const std::string_view head = std::string_view(buffer_).substr(0, end + 2);
  const size_t line_end = head.find("\r\n");
  const std::string_view line = head.substr(0, line_end);
  const bool http = line.starts_with("HTTP/1.") && line.size() >= 12 && line[8] == ' ';
  const auto parsed =
      http ? std::from_chars(line.data() + 9, line.data() + 12, status_) : std::from_chars_result{};
  if (!http || parsed.ec != std::errc() || parsed.ptr != line.data() + 12 || status_ < 100) {
    return wrong("it does not speak HTTP/1.1");
  }
  head_ = head.substr(line_end + 2);
  buffer_.erase(0, end + 4);
  if (status_ < 200) {  // an interim answer; another head follows
    head_.clear();
    return true;
  }
  const std::string_view length = header("content-length");
  const std::string_view coding = header("transfer-encoding");
  if (status_ == 204 || status_ == 304) {
    state_ = State::kDone;
  } else if (!coding.empty()) {
    if (!same_name(coding, "chunked")) return wrong("it uses an unknown transfer encoding");
    state_ = State::kChunkSize;
  } else if (!length.empty()) {
    const auto number = std::from_chars(length.data(), length.data() + length.size(), left_);
    if (number.ec != std::errc() || number.ptr != length.data() + length.size()) {
      return wrong("its length is no number");
    }
    state_ = left_ == 0 ? State::kDone : State::kLength;
  } else {
    left_ = UINT64_MAX;
    state_ = State::kUntilClose;
  }
  return true;
}

bool ReplyReader::read_line(std::string_view& line) {
  const size_t end = buffer_.find("\r\n");
  if (end == std::string::npos) {
    if (buffer_.size() > kMaxLineBytes) wrong("a line of its body does not end");
    return false;
  }
  line = std::string_view(buffer_).substr(0, end);
  return true;
}

// Moves at most `left_` bytes of the buffer to the body; false when the body is full.
bool ReplyReader::take(size_t most) {
  const size_t n = std::min({most, buffer_.size(), max_body_bytes_ - body_.size()});
  body_.append(buffer_, 0, n);
  buffer_.erase(0, n);
  left_ -= n;
  truncated_ = body_.size() == max_body_bytes_ && left_ > 0;
  if (truncated_) state_ = State::kDone;
  return !truncated_;
}

bool ReplyReader::feed(std::string_view bytes) {
  buffer_.append(bytes);
  while (true) {
    std::string_view line;
    switch (state_) {
      case State::kHead:
        if (buffer_.find("\r\n\r\n") == std::string::npos && buffer_.size() <= kMaxHeadBytes) {
          return true;
        }
        if (!read_head()) return false;
        break;
      case State::kLength:
        if (!take(static_cast<size_t>(std::min<uint64_t>(left_, SIZE_MAX)))) return false;
        if (left_ > 0) return true;
        state_ = State::kDone;
        break;
      case State::kUntilClose:
        return take(SIZE_MAX);
      case State::kChunkSize: {
        if (!read_line(line)) return state_ != State::kWrong;
        const std::string_view digits = trim(line.substr(0, line.find(';')));
        const auto number =
            std::from_chars(digits.data(), digits.data() + digits.size(), left_, 16);
        if (number.ec != std::errc() || number.ptr != digits.data() + digits.size() ||
            digits.empty()) {
          return wrong("a chunk has no size");
        }
        buffer_.erase(0, line.size() + 2);
        state_ = left_ == 0 ? State::kTrailer : State::kChunk;
        break;
      }
      case State::kChunk:
        if (!take(static_cast<size_t>(std::min<uint64_t>(left_, SIZE_MAX)))) return false;
        if (left_ > 0) return true;
        state_ = State::kChunkEnd;
        break;
      case State::kChunkEnd:
        if (!read_line(line)) return state_ != State::kWrong;
        if (!line.empty()) return wrong("a chunk is longer than it said");
        buffer_.erase(0, 2);
        state_ = State::kChunkSize;
        break;
      case State::kTrailer:
        if (!read_line(line)) return state_ != State::kWrong;
        if (line.empty()) state_ = State::kDone;
        buffer_.erase(0, line.size() + 2);
        break;
      case State::kDone:
      case State::kWrong:
        return false;
    }
  }
}

core::Status ReplyReader::end() {
  if (state_ == State::kUntilClose) state_ = State::kDone;
  if (state_ == State::kDone) return {};
  return core::Error{core::Code::kUnavailable, problem_.empty()
                                                   ? "the answer ended early"
                                                   : "the answer is wrong: " + problem_};
}

}  // namespace hadal::fetch
