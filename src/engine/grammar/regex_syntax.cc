#include "engine/grammar/regex_syntax.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/grammar/utf8.h"

namespace hadal::grammar {
namespace {

using Kind = Regex::Node::Kind;

constexpr uint32_t kMaxDepth = 200, kMaxCount = 100'000;
constexpr uint32_t kHighSurrogate = 0xD800, kLowSurrogate = 0xDC00, kBehindSurrogates = 0xE000;

class Parser {
 public:
  Parser(std::string_view text, RegexFlags flags, Regex& out) : p_(text), flags_(flags), r_(out) {}

  std::optional<RegexProblem> run() {
    r_.root = choice();
    if (!problem_ && at_ < p_.size()) fail("unmatched )", at_);
    return std::move(problem_);
  }

 private:
  bool more() const { return !problem_ && at_ < p_.size(); }
  bool next_is(char c) const { return more() && p_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (problem_ || !p_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  uint32_t fail(std::string message, size_t at) {
    if (!problem_) problem_ = RegexProblem{std::move(message), at};
    return 0;
  }

  uint32_t chars(CharSet set) {
    return r_.add({.kind = Kind::kChars, .chars = flags_.ignore_case ? set.in_any_case() : set});
  }

  uint32_t choice() {
    std::vector<uint32_t> branches = {sequence()};
    while (take('|')) branches.push_back(sequence());
    if (branches.size() == 1) return branches[0];
    return r_.add({.kind = Kind::kChoice, .of = std::move(branches)});
  }

  uint32_t sequence() {
    std::vector<uint32_t> parts;
    while (more() && p_[at_] != '|' && p_[at_] != ')') parts.push_back(repeated());
    if (parts.size() == 1) return parts[0];
    return r_.add({.kind = Kind::kSequence, .of = std::move(parts)});
  }

  uint32_t repeated() {
    const size_t begin = at_;
    uint32_t item = atom();
    const Kind kind = problem_ ? Kind::kEmpty : r_.nodes[item].kind;
    uint32_t low = 0;
    std::optional<uint32_t> high;
    bool any = false;
    while (quantifier(low, high)) {
      if (any) return fail("a repeat of a repeat; put the first into a group", at_ - 1);
      if (kind == Kind::kBegin || kind == Kind::kEnd) {
        return fail("^ and $ cannot be repeated", begin);
      }
      any = true;
      take('?');  // lazy or not, the same texts match
      if (next_is('+')) return fail("possessive repeats are not available", at_);
      item = r_.add({.kind = Kind::kRepeat, .of = {item}, .low = low, .high = high});
    }
    return item;
  }

  bool quantifier(uint32_t& low, std::optional<uint32_t>& high) {
    high = {};
    low = 0;
    if (take('*')) return true;
    if (take('+')) {
      low = 1;
      return true;
    }
    if (take('?')) {
      high = 1;
      return true;
    }
    if (!next_is('{')) return false;
    const size_t begin = at_++;
    const auto from = number();
    std::optional<uint32_t> to = from;
    if (from && take(',')) to = number();
    if (!from || !take('}')) {  // a letter
      at_ = begin;
      return false;
    }
    low = *from;
    high = to;
    if (low > kMaxCount || high.value_or(0) > kMaxCount) {
      fail(fmt::format("more than {} repeats", kMaxCount), begin);
    } else if (high && *high < low) {
      fail("the repeats are out of order", begin);
    }
    return !problem_;
  }

  std::optional<uint32_t> number() {
    const size_t begin = at_;
    uint32_t value = 0;
    for (; more() && p_[at_] >= '0' && p_[at_] <= '9'; ++at_) {
      value = std::min(value * 10 + static_cast<uint32_t>(p_[at_] - '0'), kMaxCount + 1);
    }
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  uint32_t atom() {
    const size_t begin = at_;
    switch (p_[at_]) {
      case '(':
        return group();
      case '[':
        return char_class();
      case '^':
        ++at_;
        return r_.add({.kind = Kind::kBegin});
      case '$':
        ++at_;
        return r_.add({.kind = Kind::kEnd});
      case '.':
        ++at_;
        return chars(flags_.dot_all ? any_character() : line_ends().complement());
      case '*':
      case '+':
      case '?':
        return fail("nothing to repeat", begin);
      case '\\': {
        uint32_t code = 0;
        CharSet set;
        if (escape(false, code, set)) set.add(code, code);
        return chars(std::move(set));
      }
      default: {
        const uint32_t code = character();
        return chars({{code, code}});
      }
    }
  }

  uint32_t group() {
    const size_t begin = at_++;
    if (++depth_ > kMaxDepth) return fail("groups are nested too deeply", begin);
    if (take('?')) {
      if (take("<=") || take("<!")) return fail("look-behind is not available", begin);
      if (next_is('=') || next_is('!')) return fail("look-ahead is not available", begin);
      if (take('<')) {
        const size_t end = p_.find('>', at_);
        if (end == std::string_view::npos || end == at_) return fail("a group without a name", at_);
        at_ = end + 1;
      } else if (!take(':')) {
        return fail("flags, conditions and other (? groups are not available", begin);
      }
    }
    const uint32_t inner = choice();
    if (!take(')')) return fail("the group has no end", begin);
    --depth_;
    // A group of its own, so that what is repeated is the whole of it.
    return r_.add({.kind = Kind::kSequence, .of = {inner}});
  }

  uint32_t character() {
    const Utf8 read = read_utf8(p_.substr(at_));
    if (read.size == 0) return fail("not UTF-8", at_);
    at_ += read.size;
    return read.code;
  }

  uint32_t char_class() {
    const size_t begin = at_++;
    const bool negated = take('^');
    CharSet set;
    while (!take(']')) {
      if (!more()) return fail("the class has no end", begin);
      uint32_t low = 0, high = 0;
      const size_t from = at_;
      const bool one = class_item(low, set);
      if (next_is('-') && at_ + 1 < p_.size() && p_[at_ + 1] != ']') {
        ++at_;
        if (!more()) return fail("the class has no end", begin);
        if (!one || !class_item(high, set)) return fail("a range of a class", from);
        if (high < low) return fail("the range is out of order", from);
        set.add(low, high);
      } else if (one) {
        set.add(low, low);
      }
    }
    // Case before the complement: [^a] without case is neither a nor A.
    if (flags_.ignore_case) set = set.in_any_case();
    return r_.add({.kind = Kind::kChars, .chars = negated ? set.complement() : set});
  }

  // True: the character `code`; false: a class, added to `set`.
  bool class_item(uint32_t& code, CharSet& set) {
    if (next_is('\\')) return escape(true, code, set);
    code = character();
    return true;
  }

  bool escape(bool in_class, uint32_t& code, CharSet& set) {
    const size_t begin = at_++;
    if (!more()) {
      fail("\\ at the end", begin);
      return true;
    }
    const char c = p_[at_];
    const auto is = [&](std::string_view set_of) { return set_of.find(c) != set_of.npos; };
    if (is("dDwWsS")) {
      ++at_;
      const char lower = static_cast<char>(c | 0x20);
      const CharSet named = lower == 'd' ? digits() : lower == 'w' ? word_letters() : white_space();
      set.add(c == lower ? named : named.complement());
      return false;
    }
    const auto character_is = [&](uint32_t value) {
      ++at_;
      code = value;
      return true;
    };
    if (c == 't') return character_is('\t');
    if (c == 'n') return character_is('\n');
    if (c == 'r') return character_is('\r');
    if (c == 'f') return character_is('\f');
    if (c == 'v') return character_is('\v');
    if (c == 'b' && in_class) return character_is('\b');
    if (c == '0' && !(at_ + 1 < p_.size() && p_[at_ + 1] >= '0' && p_[at_ + 1] <= '9')) {
      return character_is(0);
    }
    if (c == 'c' || c == 'x' || c == 'u') {
      ++at_;
      code = c == 'c' ? control(begin) : c == 'x' ? hex(2, begin) : unicode(begin);
      return true;
    }
    if (is("bB")) fail("\\b and \\B are not available", begin);
    if (is("pP")) fail("\\p is not available", begin);
    if (is("0123456789k")) fail("back-references are not available", begin);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      fail(fmt::format("\\{} has no meaning", c), begin);
    }
    code = character();
    return true;
  }

  uint32_t control(size_t begin) {
    const char c = more() ? static_cast<char>(p_[at_] | 0x20) : '\0';
    if (c < 'a' || c > 'z') return fail("\\c without a letter", begin);
    ++at_;
    return static_cast<uint32_t>(c - 'a' + 1);
  }

  uint32_t hex(size_t n, size_t begin) {
    uint32_t value = 0;
    for (size_t i = 0; i < n; ++i, ++at_) {
      const char c = more() ? p_[at_] : '\0';
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        return fail("too few hexadecimal digits", begin);
      }
    }
    return value;
  }

  uint32_t unicode(size_t begin) {
    if (take('{')) {
      const size_t end = p_.find('}', at_);
      if (end == std::string_view::npos || end == at_ || end - at_ > 6) {
        return fail("\\u{ without one to six digits and }", begin);
      }
      const uint32_t code = hex(end - at_, begin);
      if (!problem_) ++at_;
      return valid(code, begin);
    }
    const uint32_t first = hex(4, begin);
    if (first < kHighSurrogate || first >= kLowSurrogate || !take("\\u")) {
      return valid(first, begin);
    }
    const uint32_t second = hex(4, begin);
    if (second < kLowSurrogate || second >= kBehindSurrogates) return valid(first, begin);
    return 0x10000 + ((first - kHighSurrogate) << 10) + (second - kLowSurrogate);
  }

  uint32_t valid(uint32_t code, size_t begin) {
    if (code > kMaxCode) return fail("beyond the last code point", begin);
    if (code >= kHighSurrogate && code < kBehindSurrogates) {
      return fail("half of a surrogate pair", begin);
    }
    return code;
  }

  const std::string_view p_;
  const RegexFlags flags_;
  Regex& r_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
  std::optional<RegexProblem> problem_;
};

}  // namespace

std::optional<RegexProblem> parse_regex(std::string_view text, RegexFlags flags, Regex& out) {
  return Parser(text, flags, out).run();
}

}  // namespace hadal::grammar
