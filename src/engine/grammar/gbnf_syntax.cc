#include "engine/grammar/ebnf_reader.h"

namespace hadal::grammar {
namespace {

class GbnfParser : EbnfReader {
 public:
  explicit GbnfParser(std::string_view text) : EbnfReader(text, "#") {}

  core::Result<Ebnf> run() {
    blanks();
    while (more()) {
      const uint32_t line = line_;
      const std::string name = rule_name();
      if (name.empty()) fail("a rule begins with a name");
      blanks();
      if (!take("::=")) fail("::= must follow the rule's name");
      blanks();
      const uint32_t body = choice();
      if (more() && !at_rule()) fail(std::string("unexpected ") + peek());
      out_.rules.push_back({.name = name, .body = body, .line = line});
    }
    if (problem_) return *problem_;
    out_.start = "root";
    return std::move(out_);
  }

 private:
  std::string rule_name() { return take_name("-"); }

  // Does another rule begin here?
  bool at_rule() {
    return ahead([&] {
      if (rule_name().empty()) return false;
      blanks();
      return next_is("::=");
    });
  }

  uint32_t choice() {
    return choice_of([&] { return sequence(); });
  }

  uint32_t sequence() {
    std::vector<uint32_t> parts;
    while (more() && peek() != '|' && peek() != ')' && !at_rule()) parts.push_back(repeated());
    return out_.add({.kind = Kind::kSequence, .of = std::move(parts), .line = line_});
  }

  uint32_t repeated() {
    const uint32_t item = atom();
    blanks();
    uint32_t low = 0;
    std::optional<uint32_t> high;
    if (take("*")) {
    } else if (take("+")) {
      low = 1;
    } else if (take("?")) {
      high = 1;
    } else if (take("{")) {
      blanks();
      const auto from = number();
      low = from.value_or(0);
      high = from;
      blanks();
      if (take(",")) {
        blanks();
        high = number();
        blanks();
      } else if (!from) {
        return fail("a repeat needs a count");
      }
      if (!take("}")) return fail("the repeat has no end");
      if (high && *high < low) return fail("the repeats are out of order");
    } else {
      return item;
    }
    blanks();
    return repeat_of(item, low, high);
  }

  uint32_t atom() {
    if (next_is("\"")) {
      std::string plain;
      return node(quoted(plain));
    }
    if (take(".")) return node(chars(any_character()));
    if (take("[")) return char_class();
    if (take("(")) return group_of(")", [&] { return choice(); });
    std::string name = rule_name();
    if (name.empty()) return fail(std::string("unexpected ") + peek());
    return out_.add({.kind = Kind::kName, .name = std::move(name), .line = line_});
  }

  uint32_t char_class() {
    const bool negated = take("^");
    CharSet set;
    while (!take("]")) {
      if (!more()) return fail("the class has no end");
      const uint32_t low = character();
      uint32_t high = low;
      if (peek() == '-' && peek(1) != ']') {
        take("-");
        high = character();
      }
      if (high < low) return fail("the range is out of order");
      set.add(low, high);
    }
    return node(chars(negated ? set.complement() : set));
  }
};

}  // namespace

core::Result<Ebnf> parse_gbnf(std::string_view text) {
  return GbnfParser(text).run();
}

}  // namespace hadal::grammar
