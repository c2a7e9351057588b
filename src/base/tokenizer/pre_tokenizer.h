#pragma once

#include <cstddef>
#include <string_view>

#include "base/tokenizer/char_class.h"

namespace hadal::tokenizer {

// The published pre-tokenizer (docs/tokenizer.md) without a regex engine: three splits, each of
// which works inside the pieces of the one before:
//   1  \p{N}{1,3}
//   2  [CJK and kana]+
//   3  [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ | "
//   "?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
// What no pattern matches stays a piece between its neighbours.
class PreTokenizer {
 public:
  PreTokenizer(std::string_view text, uint32_t max_digits) : text_(text), max_digits_(max_digits) {}

  // The next piece, or an empty view at the end. Pieces cover the text without gaps.
  std::string_view next();

 private:
  struct Char {
    uint32_t code;
    uint32_t size;
    uint8_t bits;
  };
  Char peek(size_t at) const {
    const auto lead = static_cast<unsigned char>(text_[at]);
    return lead < 0x80 ? Char{lead, 1, classes_.of_ascii(lead)} : peek_wide(at);
  }
  Char peek_wide(size_t at) const;
  size_t segment_end(
      size_t at) const;  // end of the run of characters that splits 1 and 2 keep together
  size_t match_words(size_t at) const;  // end of the match of split 3 at `at`, or `at` if none
  size_t space_match(size_t at) const;

  const std::string_view text_;
  const uint32_t max_digits_;
  const CharClasses& classes_ = CharClasses::get();
  size_t at_ = 0;
  size_t segment_end_ = 0;
};

}  // namespace hadal::tokenizer
