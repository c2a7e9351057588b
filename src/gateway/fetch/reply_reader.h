#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/core/result.h"

namespace hadal::fetch {

// A response of HTTP/1.1, read as its bytes come. Bounded: 64 KB of head, `max_body_bytes` of body;
// what is beyond ends the reading with `truncated`.
class ReplyReader {
 public:
  explicit ReplyReader(size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // False when nothing more is wanted: the answer is complete, truncated or wrong.
  bool feed(std::string_view bytes);
  // The connection was closed. An error if the answer was not complete by then.
  core::Status end();

  int status() const { return status_; }
  // First value of a header, by lower-case name; "" if absent.
  std::string_view header(std::string_view name) const;
  const std::string& body() const { return body_; }
  std::string take_body() { return std::move(body_); }
  bool truncated() const { return truncated_; }

 private:
  enum class State : uint8_t {
    kHead,
    kLength,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailer,
    kUntilClose,
    kDone,
    kWrong
  };
  bool read_head();
  bool read_line(std::string_view& line);
  bool take(size_t most);
  bool wrong(std::string_view problem);

  const size_t max_body_bytes_;
  State state_ = State::kHead;
  std::string buffer_;  // bytes not used yet
  std::string head_;
  std::string body_;
  uint64_t left_ = 0;  // of the body or the chunk
  int status_ = 0;
  bool truncated_ = false;
  std::string problem_;
};

}  // namespace hadal::fetch
