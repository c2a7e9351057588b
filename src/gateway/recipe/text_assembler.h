#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/recipe/decoder.h"
#include "gateway/recipe/vocabulary.h"

namespace hadal::recipe {

// Turns tokens into pieces of valid UTF-8 for a Decoder: holds back an unfinished character (at
// most 3 bytes), replaces what is no UTF-8 by U+FFFD, marks control tokens as such.
class TextAssembler {
 public:
  // Both must outlive the assembler.
  TextAssembler(const Vocabulary& vocabulary, Decoder& decoder, bool logprobs)
      : vocabulary_(vocabulary), decoder_(decoder), logprobs_(logprobs) {}

  void push(const types::TokenEvent& token);
  // An unfinished character at the end becomes U+FFFD.
  void finish();

 private:
  void flush();

  const Vocabulary& vocabulary_;
  Decoder& decoder_;
  const bool logprobs_;
  std::string tail_;                       // an unfinished character
  std::string text_;                       // scratch
  std::vector<types::TokenEvent> tokens_;  // those that have given no text yet
};

// The way of 0.2.0, for `compat`: ids are buffered until their text is not empty and does not end
// in U+FFFD; then all of them are one piece.
class ChunkAssembler {
 public:
  ChunkAssembler(const Vocabulary& vocabulary, Decoder& decoder, bool logprobs)
      : vocabulary_(vocabulary), decoder_(decoder), logprobs_(logprobs) {}
  // Returns the tokens that count as generated now.
  size_t push(std::span<const types::TokenEvent> tokens);

 private:
  const Vocabulary& vocabulary_;
  Decoder& decoder_;
  const bool logprobs_;
  std::vector<types::TokenEvent> buffered_;
};

// Appends `bytes` as valid UTF-8, each maximal broken part as U+FFFD. Returns the bytes at the end
// that may be the beginning of a character and were left out; `last`: nothing is left out.
size_t append_utf8(std::string& out, std::string_view bytes, bool last);
bool is_utf8(std::string_view bytes);

}  // namespace hadal::recipe
