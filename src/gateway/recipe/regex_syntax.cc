#include "gateway/recipe/regex_syntax.h"

#include <cstdint>
#include <string>

namespace hadal::recipe {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

constexpr std::string_view kProperties[] = {
    "L",           "Lu",     "Ll",         "Lt",        "Lm",     "Lo",          "M",
    "Mn",          "Mc",     "Me",         "N",         "Nd",     "Nl",          "No",
    "P",           "Pc",     "Pd",         "Ps",        "Pe",     "Pi",          "Pf",
    "Po",          "S",      "Sm",         "Sc",        "Sk",     "So",          "Z",
    "Zs",          "Zl",     "Zp",         "C",         "Cc",     "Cf",          "Co",
    "Cn",          "Letter", "Alphabetic", "Digit",     "Number", "Punctuation", "Symbol",
    "White_Space", "Emoji",  "Uppercase",  "Lowercase", "ASCII",  "Any",         "Mark",
    "Separator",   "Han",    "Hiragana",   "Katakana",  "Latin",  "Greek",       "Cyrillic",
    "Arabic",      "Hebrew", "Thai",       "Hangul"};

class RegexReader {
 public:
  explicit RegexReader(std::string_view pattern) : p_(pattern) {}

  bool run() {
    size_t depth = 0;
    bool can_repeat = false;
    while (at_ < p_.size()) {
      const char c = p_[at_];
      if (c == '(') {
        if (!open_group()) return false;
        ++depth;
        can_repeat = false;
      } else if (c == ')') {
        if (depth-- == 0) return false;
        ++at_;
        can_repeat = true;
      } else if (c == '[') {
        if (!char_class()) return false;
        can_repeat = true;
      } else if (c == '*' || c == '+' || c == '?') {
        if (!can_repeat) return false;
        ++at_;
        lazy();
        can_repeat = false;
      } else if (c == '{' && is_bound()) {
        if (!can_repeat || !bound()) return false;
        lazy();
        can_repeat = false;
      } else if (c == '\\') {
        int64_t unused = 0;
        if (!escape(unused)) return false;
        can_repeat = true;
      } else {
        can_repeat = c != '|' && c != '^';
        ++at_;
      }
    }
    return depth == 0;
  }

 private:
  bool left(size_t n) const { return p_.size() - at_ >= n; }

  void lazy() {
    if (at_ < p_.size() && p_[at_] == '?') ++at_;
  }

  bool open_group() {
    ++at_;
    if (!left(1) || p_[at_] != '?') return true;
    if (!left(2)) return false;
    ++at_;
    const char kind = p_[at_];
    if (kind == ':' || kind == '=' || kind == '!') {
      ++at_;
      return true;
    }
    if (kind != '<') return false;
    if (left(2) && (p_[at_ + 1] == '=' || p_[at_ + 1] == '!')) {
      at_ += 2;
      return true;
    }
    const size_t end = p_.find('>', at_);
    if (end == std::string_view::npos || end == at_ + 1) return false;
    for (size_t i = at_ + 1; i < end; ++i) {
      if (!is_word(p_[i])) return false;
    }
    at_ = end + 1;
    return true;
  }

  bool is_bound() const {
    size_t i = at_ + 1;
    if (i >= p_.size() || !is_digit(p_[i])) return false;
    while (i < p_.size() && is_digit(p_[i])) ++i;
    if (i < p_.size() && p_[i] == ',') ++i;
    while (i < p_.size() && is_digit(p_[i])) ++i;
    return i < p_.size() && p_[i] == '}';
  }

  int64_t digits() {
    int64_t value = 0;
    while (at_ < p_.size() && is_digit(p_[at_])) {
      if (value < 1000000000) value = value * 10 + (p_[at_] - '0');
      ++at_;
    }
    return value;
  }

  bool bound() {
    ++at_;
    const int64_t low = digits();
    bool good = true;
    if (p_[at_] == ',') {
      ++at_;
      if (p_[at_] != '}') good = digits() >= low;
    }
    ++at_;
    return good;
  }

  // `code`: the character, or -1 for a class.
  bool escape(int64_t& code) {
    ++at_;
    if (at_ >= p_.size()) return false;
    const char c = p_[at_++];
    code = -1;
    if (c >= '1' && c <= '9') return false;
    if (c == 'k') return false;
    if (c == 'p' || c == 'P') return property();
    if (c == 'x') return hex(2, code);
    if (c == 'u') return unicode(code);
    if (c == 'd' || c == 'D' || c == 'w' || c == 'W' || c == 's' || c == 'S' || c == 'b' ||
        c == 'B') {
      return true;
    }
    if (c == 'c') {
      if (at_ >= p_.size()) return false;
      ++at_;
      return true;
    }
    code = static_cast<unsigned char>(c);
    return true;
  }

  bool hex(size_t n, int64_t& code) {
    if (!left(n)) return false;
    for (size_t i = 0; i < n; ++i) {
      if (!is_hex(p_[at_ + i])) return false;
    }
    code = std::stoll(std::string(p_.substr(at_, n)), nullptr, 16);
    at_ += n;
    return true;
  }

  bool unicode(int64_t& code) {
    if (at_ < p_.size() && p_[at_] == '{') {
      const size_t end = p_.find('}', at_);
      if (end == std::string_view::npos || end == at_ + 1 || end - at_ > 7) return false;
      ++at_;
      if (!hex(end - at_, code)) return false;
      ++at_;
      return code <= 0x10FFFF;
    }
    return hex(4, code);
  }

  bool property() {
    if (!left(1) || p_[at_] != '{') return false;
    const size_t end = p_.find('}', at_);
    if (end == std::string_view::npos) return false;
    std::string_view name = p_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (const size_t equals = name.find('='); equals != std::string_view::npos) {
      name = name.substr(equals + 1);
    }
    for (const std::string_view known : kProperties) {
      if (known == name) return true;
    }
    return false;
  }

  // One member of a class; `code` is -1 for a set such as \d.
  bool class_atom(int64_t& code) {
    if (p_[at_] == '\\') return escape(code);
    const auto first = static_cast<unsigned char>(p_[at_]);
    const size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    code = size == 1 ? first : first & (0xFF >> (size + 1));
    for (size_t i = 1; i < size && at_ + i < p_.size(); ++i) {
      code = (code << 6) | (p_[at_ + i] & 0x3F);
    }
    at_ = std::min(at_ + size, p_.size());
    return true;
  }

  bool char_class() {
    ++at_;
    if (left(1) && p_[at_] == '^') ++at_;
    while (true) {
      if (at_ >= p_.size()) return false;
      if (p_[at_] == ']') break;
      int64_t low = 0;
      if (!class_atom(low)) return false;
      if (left(2) && p_[at_] == '-' && p_[at_ + 1] != ']') {
        ++at_;
        int64_t high = 0;
        if (!class_atom(high)) return false;
        if (low >= 0 && high >= 0 && low > high) return false;
      }
    }
    ++at_;
    return true;
  }

  std::string_view p_;
  size_t at_ = 0;
};

}  // namespace

bool is_regex(std::string_view pattern) {
  return RegexReader(pattern).run();
}

}  // namespace hadal::recipe
