#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hadal::tokenizer {

// One character at the front of `text` (not empty). An invalid sequence gives kInvalid and the
// length of its maximal part (Unicode 15, table 3-7), as String::from_utf8_lossy and the Python
// package do.
struct Utf8Char {
  static constexpr uint32_t kInvalid = 0xffffffff;
  uint32_t code = kInvalid;
  uint32_t size = 1;
  bool cut = false;  // with kInvalid: the text ended inside what could still become a character
};
Utf8Char next_char(std::string_view text);

void append_utf8(std::string& out, uint32_t code);
bool is_valid_utf8(std::string_view text);
// Every invalid part replaced by U+FFFD.
std::string lossy_utf8(std::string_view bytes);

// Turns the bytes of tokens into text that never ends inside a character. Holds back at most three
// bytes.
class Utf8Stream {
 public:
  // Appends what is complete; invalid parts as U+FFFD.
  void push(std::string_view bytes, std::string& out);
  // Ends the text: what is held back was no character and becomes U+FFFD.
  void finish(std::string& out);
  bool holds_back() const { return n_ > 0; }

 private:
  char held_[4] = {};
  uint8_t n_ = 0;
};

}  // namespace hadal::tokenizer
