#include <algorithm>

#include "engine/grammar/ebnf_reader.h"

namespace hadal::grammar {
namespace {

class LarkParser : EbnfReader {
 public:
  explicit LarkParser(std::string_view text) : EbnfReader(text, "//", "#") {}

  core::Result<Ebnf> run() {
    blanks();
    while (more()) {
      if (take("%")) {
        directive();
      } else {
        rule();
      }
      blanks();
    }
    if (problem_) return *problem_;
    out_.start = "start";
    return std::move(out_);
  }

 private:
  static bool is_terminal(std::string_view name) {
    const size_t first = name.find_first_not_of('_');
    return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
  }

  void priority() {
    if (peek() != '.' || !(is_digit(peek(1)) || peek(1) == '-')) return;
    take(".");
    take("-");
    number();
  }

  // `?` and `!` in front of a rule's name say how trees are made.
  void skip_tree_marks() {
    while (take("?") || take("!")) {
    }
  }

  // Does another rule begin here?
  bool at_rule() {
    return ahead([&] {
      skip_tree_marks();
      if (take_name().empty()) return false;
      priority();
      blanks();
      return next_is(":");
    });
  }

  void rule() {
    const uint32_t line = line_;
    skip_tree_marks();
    const std::string name = take_name();
    if (name.empty()) {
      fail("a rule begins with a name");
      return;
    }
    if (next_is("{")) fail("templates are not available");
    priority();
    blanks();
    if (!take(":")) fail("a colon must follow the rule's name");
    blanks();
    const uint32_t body = choice();
    if (more() && !at_rule() && peek() != '%') fail(std::string("unexpected ") + peek());
    out_.rules.push_back(
        {.name = name, .body = body, .line = line, .is_terminal = is_terminal(name)});
  }

  void directive() {
    const std::string word = take_name();
    blanks();
    if (word == "ignore") {
      out_.ignored.push_back(choice());
    } else if (word == "import") {
      import();
    } else {
      fail("%" + word + " is not available");
    }
  }

  void import() {
    if (!take("common")) {
      fail("only the module common can be imported");
      return;
    }
    if (take(".")) {
      import_one(true);
      return;
    }
    blanks();
    if (!take("(")) fail("names in parentheses, or a dot and a name, must follow common");
    do {
      blanks();
      import_one(false);
      blanks();
    } while (take(","));
    if (!take(")")) fail("the list of names has no end");
  }

  void import_one(bool may_rename) {
    const std::string name = take_name();
    const std::string_view expression = lark_common(name);
    if (expression.empty()) {
      fail("the module common has no " + name + " here");
      return;
    }
    std::string as = name;
    const size_t at = at_;
    const uint32_t line = line_;
    blanks();
    if (may_rename && take("->")) {
      blanks();
      as = take_name();
    } else {
      at_ = at;
      line_ = line;
    }
    const uint32_t body = node(expression_node(expression, {}));
    out_.rules.push_back({.name = as, .body = body, .line = line_, .is_terminal = true});
  }

  uint32_t choice() {
    // The first alternative may be written with a bar in front, too.
    if (take("|")) blanks();
    return choice_of([&] { return sequence(); });
  }

  uint32_t sequence() {
    std::vector<uint32_t> parts;
    while (more()) {
      const char c = peek();
      if (c == '|' || c == ')' || c == ']' || c == '%' || at_rule()) break;
      if (take("->")) {
        blanks();
        if (take_name().empty()) return fail("a name must follow ->");
        blanks();
        continue;
      }
      parts.push_back(repeated());
    }
    return out_.add({.kind = Kind::kSequence, .of = std::move(parts), .line = line_});
  }

  uint32_t repeated() {
    const uint32_t item = atom();
    blanks();
    uint32_t low = 0;
    std::optional<uint32_t> high;
    // `?` may also begin the next rule's name.
    if (next_is("?") && !at_rule()) {
      take("?");
      high = 1;
    } else if (take("*")) {
    } else if (take("+")) {
      low = 1;
    } else if (take("~")) {
      blanks();
      const auto from = number();
      if (!from) return fail("a count must follow ~");
      low = *from;
      high = from;
      if (take("..")) {
        high = number();
        if (!high || *high < low) return fail("the repeats are out of order");
      }
    } else {
      return item;
    }
    blanks();
    return repeat_of(item, low, high);
  }

  uint32_t atom() {
    if (next_is("\"")) return text();
    if (next_is("/")) return expression();
    if (next_is("(") || next_is("[")) return group();
    if (next_is("<") || next_is("@")) return fail("special tokens are not available");
    if (next_is("&") || next_is("~")) return fail("and, not are not available");
    std::string name = take_name();
    if (name.empty()) return fail(std::string("unexpected ") + peek());
    if (next_is("{")) return fail("templates are not available");
    return out_.add({.kind = Kind::kName, .name = std::move(name), .line = line_});
  }

  uint32_t group() {
    const bool optional = take("[");
    if (!optional) take("(");
    const uint32_t inner = group_of(optional ? "]" : ")", [&] { return choice(); });
    return optional ? repeat_of(inner, 0, 1) : inner;
  }

  // "text", "text"i or "a".."z".
  uint32_t text() {
    std::string plain;
    const uint32_t first = quoted(plain);
    if (problem_) return 0;
    if (take("..")) {
      if (!next_is("\"")) return fail("a text must follow ..");
      const uint32_t last = quoted(plain);
      if (problem_) return 0;
      const auto code = [&](uint32_t of) -> std::optional<uint32_t> {
        const std::vector<uint32_t>& parts = out_.regex.nodes[of].of;
        if (parts.size() != 1) return std::nullopt;
        return out_.regex.nodes[parts[0]].chars.ranges()[0].low;
      };
      if (!code(first) || !code(last) || *code(first) > *code(last)) {
        return fail("a range goes from one character to a later one");
      }
      return node(chars({{*code(first), *code(last)}}));
    }
    if (peek() == 'i' && !is_letter(peek(1))) {
      take("i");
      for (const uint32_t part : out_.regex.nodes[first].of) {
        out_.regex.nodes[part].chars = out_.regex.nodes[part].chars.in_any_case();
      }
    }
    return node(first);
  }

  uint32_t expression() {
    take("/");
    const size_t begin = at_;
    bool in_class = false;
    while (more() && (peek() != '/' || in_class)) {
      if (peek() == '\n') return fail("the expression has no end on its line");
      if (peek() == '\\') ++at_;
      if (peek() == '[') in_class = true;
      if (peek() == ']') in_class = false;
      ++at_;
    }
    const std::string_view body = text_.substr(begin, std::min(at_, text_.size()) - begin);
    if (!take("/")) return fail("the expression has no end");
    RegexFlags flags;
    for (; is_letter(peek()); ++at_) {
      if (peek() == 'i') {
        flags.ignore_case = true;
      } else if (peek() == 's') {
        flags.dot_all = true;
      } else if (peek() != 'u') {
        return fail(std::string("the flag ") + peek() + " is not available");
      }
    }
    return node(expression_node(body, flags));
  }

  uint32_t expression_node(std::string_view body, RegexFlags flags) {
    const size_t first = out_.regex.nodes.size();
    if (const auto wrong = parse_regex(body, flags, out_.regex)) {
      return fail(wrong->message + " (in an expression)");
    }
    const auto begin = out_.regex.nodes.begin() + static_cast<std::ptrdiff_t>(first);
    const bool anchored = std::any_of(begin, out_.regex.nodes.end(), [](const auto& one) {
      return one.kind == Regex::Node::Kind::kBegin || one.kind == Regex::Node::Kind::kEnd;
    });
    if (anchored) return fail("^ and $ are not available in a grammar");
    return out_.regex.root;
  }
};

}  // namespace

core::Result<Ebnf> parse_lark(std::string_view text) {
  return LarkParser(text).run();
}

}  // namespace hadal::grammar
