#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace hadal::main {

// Reads one HTTP/1.1 answer as its bytes come: the status, then the lines of a chunked body.
// Bounded: a head or a line that is longer than kMaxLine fails.
class SseLines {
 public:
  using OnLine = std::function<void(std::string_view line)>;
  static constexpr size_t kMaxLine = 1 << 20;

  // Calls `on_line` for every complete line of the body, without its end. False: this is no answer
  // of status 200 in chunks; problem() says what it was.
  bool feed(std::string_view bytes, const OnLine& on_line);
  bool done() const { return state_ == State::kDone; }
  const std::string& problem() const { return problem_; }

 private:
  enum class State : uint8_t { kHead, kSize, kData, kDataEnd, kDone };
  bool fail(std::string what);
  bool read_head();
  bool read_size();
  // Moves bytes into `pending_` up to and with the next '\n'; true when there was one.
  bool take_line(std::string_view& bytes);
  bool split_lines(std::string_view data, const OnLine& on_line);

  State state_ = State::kHead;
  uint64_t left_ = 0;    // bytes of the current chunk
  std::string pending_;  // a piece of the head or of a size line
  std::string rest_;     // the beginning of a body line
  std::string problem_;
};

}  // namespace hadal::main
