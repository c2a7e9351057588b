#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/char_set.h"

namespace hadal::grammar {

// A regular expression as a tree.
struct Regex {
  struct Node {
    enum class Kind : uint8_t {
      kEmpty,
      kChars,
      kSequence,
      kChoice,
      kRepeat,
      kBegin,
      kEnd
    } kind = Kind::kEmpty;
    CharSet chars = {};             // kChars
    std::vector<uint32_t> of = {};  // kSequence, kChoice: several; kRepeat: one
    uint32_t low = 0;               // kRepeat
    std::optional<uint32_t> high = {};
  };
  std::vector<Node> nodes;
  uint32_t root = 0;

  uint32_t add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<uint32_t>(nodes.size() - 1);
  }
};

struct RegexFlags {
  bool ignore_case = false;  // i: ASCII letters only, which is fewer texts than Unicode's folding
  bool dot_all = false;      // s: `.` is any character
};

// What is wrong, and at which byte.
struct RegexProblem {
  std::string message;
  size_t at = 0;
};

// Reads the regular part of ECMAScript's syntax (with the `u` flag, and `]`, `{`, `}` by themselves
// as letters): characters, `.`, classes with \d \w \s \D \W \S, escapes \t \n \r \f \v \0 \cX \xHH
// \uHHHH (pairs too) \u{H}, alternatives, groups (capturing, `(?:`, named), `*` `+` `?` `{n}`
// `{n,}` `{n,m}` with or without a lazy `?`, `^` and `$` as the ends of the text. Appends to `out`
// and sets `root`. Everything else is a problem that names itself: look-around, back-references,
// \b, \p, flags in the expression.
std::optional<RegexProblem> parse_regex(std::string_view text, RegexFlags flags, Regex& out);

}  // namespace hadal::grammar
