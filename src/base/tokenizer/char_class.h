#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace hadal::tokenizer {

// What the pre-tokenizer asks of a character: bits of its Unicode general category.
enum CharClass : uint8_t {
  kLetter = 1,       // \p{L}
  kMark = 2,         // \p{M}
  kNumber = 4,       // \p{N}
  kPunctuation = 8,  // \p{P}
  kSymbol = 16,      // \p{S}
  kSpace = 32,       // \s, White_Space
  kNewline = 64,     // CR, LF
  kCjk = 128,        // U+4E00-9FA5, U+3040-309F, U+30A0-30FF
};

// Classes of all characters: pages of 256, equal pages shared. Made once, const afterwards.
class CharClasses {
 public:
  static const CharClasses& get();
  uint8_t of(uint32_t code) const {
    return code < 0x110000 ? pages_[page_of_[code >> 8]][code & 0xff] : uint8_t{0};
  }

  uint8_t of_ascii(uint32_t code) const { return ascii_[code]; }

 private:
  CharClasses();
  std::array<uint8_t, 128> ascii_{};
  std::array<uint16_t, 0x1100> page_of_{};
  std::vector<std::array<uint8_t, 256>> pages_;
};

}  // namespace hadal::tokenizer
