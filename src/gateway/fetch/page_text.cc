#include "gateway/fetch/page_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

namespace hadal::fetch {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
}
char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}
bool is_name(char c) {
  const char l = lower(c);
  return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9');
}

constexpr std::array<std::string_view, 31> kBlocks = {
    "address", "article",  "aside",  "blockquote", "br",    "dd", "div",  "dl",
    "dt",      "fieldset", "footer", "form",       "h1",    "h2", "h3",   "h4",
    "h5",      "h6",       "head",   "header",     "hr",    "li", "main", "nav",
    "ol",      "p",        "pre",    "section",    "table", "tr", "ul"};
// What stands between their tags is not shown.
constexpr std::array<std::string_view, 6> kHidden = {"script", "style",    "noscript",
                                                     "svg",    "template", "iframe"};

template <size_t N>
bool holds(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void append_code_point(std::string& out, uint32_t code) {
  if (code == 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = 0xFFFD;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

class Reader {
 public:
  explicit Reader(std::string_view html) : html_(html) {}

  PageText run() {
    while (at_ < html_.size()) {
      const char c = html_[at_];
      if (c == '<' && tag()) continue;
      if (c == '&' && reference()) continue;
      put(c);
      ++at_;
    }
    trim(out_.text);
    trim(out_.title);
    return std::move(out_);
  }

 private:
  std::string& target() { return in_title_ ? out_.title : out_.text; }

  void put(char c) {
    std::string& to = target();
    if (!is_space(c)) {
      to += c;
    } else if (!to.empty() && !is_space(to.back())) {
      to += ' ';
    }
  }

  void new_line() {
    std::string& to = out_.text;
    while (!to.empty() && to.back() == ' ') to.pop_back();
    if (!to.empty() && to.back() != '\n') to += '\n';
  }

  static void trim(std::string& text) {
    while (!text.empty() && is_space(text.back())) text.pop_back();
  }

  // A tag or comment at '<'; false if it is neither.
  bool tag() {
    const std::string_view rest = html_.substr(at_);
    if (rest.starts_with("<!--")) {
      const size_t end = html_.find("-->", at_ + 4);
      at_ = end == std::string_view::npos ? html_.size() : end + 3;
      return true;
    }
    const bool closing = rest.size() > 1 && rest[1] == '/';
    size_t name_at = at_ + (closing ? 2 : 1);
    if (name_at >= html_.size()) return false;
    if (!is_name(html_[name_at]) && html_[name_at] != '!' && html_[name_at] != '?') return false;
    std::string name;
    while (name_at < html_.size() && is_name(html_[name_at]) && name.size() < 16) {
      name += lower(html_[name_at++]);
    }
    at_ = tag_end(name_at);
    if (name == "title" && out_.title.empty()) {
      in_title_ = !closing;
    } else if (name == "title") {
      in_title_ = false;
    }
    if (holds(kBlocks, name)) new_line();
    if (name == "td" || name == "th") put(' ');
    if (!closing && holds(kHidden, name)) skip_to_end_of(name);
    return true;
  }

  // Behind the '>' of a tag; quoted attribute values may hold one.
  size_t tag_end(size_t at) const {
    char quote = 0;
    for (; at < html_.size(); ++at) {
      const char c = html_[at];
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '>') {
        return at + 1;
      }
    }
    return html_.size();
  }

  void skip_to_end_of(std::string_view name) {
    while (at_ < html_.size()) {
      const size_t open = html_.find("</", at_);
      if (open == std::string_view::npos) break;
      at_ = open + 2;
      const std::string_view found = html_.substr(at_, name.size());
      if (std::equal(found.begin(), found.end(), name.begin(), name.end(),
                     [](char a, char b) { return lower(a) == b; })) {
        at_ = tag_end(at_);
        return;
      }
    }
    at_ = html_.size();
  }

  // A character reference at '&'; false if it is none that is known.
  bool reference() {
    const size_t end = html_.substr(at_, 12).find(';');
    if (end == std::string_view::npos) return false;
    const std::string_view name = html_.substr(at_ + 1, end - 1);
    uint32_t code = 0;
    if (name.starts_with('#')) {
      const bool hex = name.size() > 1 && lower(name[1]) == 'x';
      const std::string_view digits = name.substr(hex ? 2 : 1);
      const auto parsed =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
      if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return false;
    } else {
      constexpr std::pair<std::string_view, uint32_t> kNames[] = {
          {"amp", '&'},       {"lt", '<'},       {"gt", '>'},       {"quot", '"'},
          {"apos", '\''},     {"nbsp", ' '},     {"ndash", 0x2013}, {"mdash", 0x2014},
          {"hellip", 0x2026}, {"copy", 0xA9},    {"laquo", 0xAB},   {"raquo", 0xBB},
          {"rsquo", 0x2019},  {"lsquo", 0x2018}, {"rdquo", 0x201D}, {"ldquo", 0x201C}};
      for (const auto& [known, value] : kNames) {
        if (known == name) code = value;
      }
      if (code == 0) return false;
    }
    at_ += end + 1;
    if (code < 0x80) {
      put(static_cast<char>(code == 0 ? ' ' : code));
    } else {
      append_code_point(target(), code);
    }
    return true;
  }

  const std::string_view html_;
  size_t at_ = 0;
  PageText out_;
  bool in_title_ = false;
};

}  // namespace

PageText html_to_text(std::string_view html) {
  return Reader(html).run();
}

}  // namespace hadal::fetch
