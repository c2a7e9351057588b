#pragma once

#include <cstdint>
#include <vector>

namespace hadal::grammar {

constexpr uint32_t kMaxCode = 0x10FFFF;

// A set of code points, as ranges in order that do not touch.
class CharSet {
 public:
  struct Range {
    uint32_t low = 0, high = 0;  // both ends included
    bool operator==(const Range&) const = default;
  };

  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges) {
    for (const Range& range : ranges) add(range.low, range.high);
  }

  void add(uint32_t low, uint32_t high);
  void add(const CharSet& other);
  CharSet complement() const;
  // With the other case of every ASCII letter.
  CharSet in_any_case() const;

  const std::vector<Range>& ranges() const { return ranges_; }
  bool contains(uint32_t code) const;
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

// The classes of ECMAScript (ECMA-262, CharacterClassEscape and `.`).
CharSet digits();         // \d
CharSet word_letters();   // \w
CharSet white_space();    // \s
CharSet line_ends();      // what `.` leaves out
CharSet any_character();  // without surrogates, which no text has

}  // namespace hadal::grammar
