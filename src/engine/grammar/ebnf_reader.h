#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/grammar/ebnf.h"
#include "engine/grammar/utf8.h"

namespace hadal::grammar {

// The text of a grammar, character by character, with its first problem, and what both notations
// have. Comments begin with `comment` or, if that is not "", `other`.
class EbnfReader {
 protected:
  using Kind = Ebnf::Node::Kind;
  EbnfReader(std::string_view text, std::string_view comment, std::string_view other = "")
      : text_(text), comment_(comment), other_comment_(other) {}

  bool more() const { return !problem_ && at_ < text_.size(); }
  bool next_is(std::string_view word) const {
    return !problem_ && text_.substr(at_).starts_with(word);
  }
  bool take(std::string_view word) {
    if (!next_is(word)) return false;
    for (const char c : word) line_ += c == '\n' ? 1 : 0;
    at_ += word.size();
    return true;
  }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  uint32_t fail(std::string message) {
    if (!problem_) problem_ = ebnf_error(line_, std::move(message));
    return 0;
  }

  static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // Passes over blanks, line breaks and comments.
  void blanks() {
    while (more()) {
      if (take("\n") || take(" ") || take("\t") || take("\r")) continue;
      if (!next_is(comment_) && (other_comment_.empty() || !next_is(other_comment_))) return;
      while (more() && peek() != '\n') ++at_;
    }
  }

  // A letter, then letters, digits and those of `more_letters`; "" if none stands here.
  std::string take_name(std::string_view more_letters = "") {
    const size_t begin = at_;
    if (is_letter(peek())) {
      while (is_letter(peek()) || is_digit(peek()) ||
             (peek() != '\0' && more_letters.find(peek()) != std::string_view::npos)) {
        ++at_;
      }
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  // What `is` says of the text from here on, which it may read; nothing is passed over.
  template <typename Is>
  bool ahead(const Is& is) {
    const size_t at = at_;
    const uint32_t line = line_;
    const bool found = is();
    at_ = at;
    line_ = line;
    return found;
  }

  // Alternatives with bars between them; `sequence` reads one.
  template <typename Sequence>
  uint32_t choice_of(const Sequence& sequence) {
    std::vector<uint32_t> branches = {sequence()};
    while (take("|")) {
      blanks();
      branches.push_back(sequence());
    }
    if (branches.size() == 1) return branches[0];
    return out_.add({.kind = Kind::kChoice, .of = std::move(branches), .line = line_});
  }

  // Behind the opening of a group; `choice` reads what is inside.
  template <typename Choice>
  uint32_t group_of(std::string_view close, const Choice& choice) {
    if (++depth_ > kMaxDepth) return fail("groups are nested too deeply");
    blanks();
    const uint32_t inner = choice();
    if (!take(close)) return fail("the group has no end");
    --depth_;
    return inner;
  }

  uint32_t repeat_of(uint32_t item, uint32_t low, std::optional<uint32_t> high) {
    return out_.add({.kind = Kind::kRepeat, .of = {item}, .low = low, .high = high, .line = line_});
  }

  std::optional<uint32_t> number() {
    if (!is_digit(peek())) return std::nullopt;
    uint32_t value = 0;
    for (; is_digit(peek()); ++at_) {
      value = std::min(value * 10 + static_cast<uint32_t>(peek() - '0'), kMaxCount + 1);
    }
    if (value > kMaxCount) fail("more repeats than can be counted");
    return value;
  }

  uint32_t hex(size_t n) {
    uint32_t value = 0;
    for (size_t i = 0; i < n; ++i, ++at_) {
      const char c = peek(), lower = static_cast<char>(c | 0x20);
      if (is_digit(c)) {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        return fail("too few hexadecimal digits");
      }
    }
    if (value > kMaxCode || (value >= 0xD800 && value < 0xE000)) return fail("no code point");
    return value;
  }

  // One character of a text or a class, escapes included.
  uint32_t character() {
    if (!take("\\")) {
      const Utf8 read = read_utf8(text_.substr(at_));
      if (read.size == 0) return fail(at_ < text_.size() ? "not UTF-8" : "the text has no end");
      line_ += read.code == '\n' ? 1 : 0;
      at_ += read.size;
      return read.code;
    }
    const char c = peek();
    if (c == '\0') return fail("\\ at the end");
    if (static_cast<uint8_t>(c) >= 0x80) return character();
    ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'b':
        return '\b';
      case '0':
        return 0;
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      default:
        if (is_letter(c) || is_digit(c)) return fail(std::string("\\") + c + " has no meaning");
        return static_cast<uint8_t>(c);
    }
  }

  uint32_t chars(const CharSet& set) {
    return out_.regex.add({.kind = Regex::Node::Kind::kChars, .chars = set});
  }
  uint32_t node(uint32_t regex_node) {
    return out_.add({.kind = Ebnf::Node::Kind::kText, .text = regex_node, .line = line_});
  }

  // Up to the quote that `text_` stands before; the text as a node of the expression.
  uint32_t quoted(std::string& plain) {
    std::vector<uint32_t> parts;
    take("\"");
    while (!take("\"")) {
      if (!more()) return fail("the text has no end");
      if (peek() == '\n') return fail("the text has no end on its line");
      const size_t begin = at_;
      const uint32_t code = character();
      plain.append(text_.substr(begin, at_ - begin));
      parts.push_back(chars({{code, code}}));
    }
    return out_.regex.add({.kind = Regex::Node::Kind::kSequence, .of = std::move(parts)});
  }

  static constexpr uint32_t kMaxCount = 100'000, kMaxDepth = 200;

  const std::string_view text_, comment_, other_comment_;
  size_t at_ = 0;
  uint32_t line_ = 1, depth_ = 0;
  std::optional<core::Error> problem_;
  Ebnf out_;
};

}  // namespace hadal::grammar
