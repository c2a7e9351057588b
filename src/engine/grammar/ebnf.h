#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "engine/grammar/char_dfa.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/regex_syntax.h"

namespace hadal::grammar {

// A grammar of rules as a tree, of either notation.
struct Ebnf {
  struct Node {
    enum class Kind : uint8_t { kText, kName, kSequence, kChoice, kRepeat } kind = Kind::kSequence;
    uint32_t text = 0;              // kText: a node of `regex`
    std::string name = {};          // kName: of a rule
    std::vector<uint32_t> of = {};  // the others: nodes
    uint32_t low = 0;               // kRepeat
    std::optional<uint32_t> high = {};
    uint32_t line = 0;  // from 1
  };
  struct Rule {
    std::string name;
    uint32_t body = 0;
    uint32_t line = 0;
    // Lark's upper-case names: regular, and nothing is ignored inside.
    bool is_terminal = false;
  };
  Regex regex;
  std::vector<Node> nodes;
  std::vector<Rule> rules;
  std::vector<uint32_t> ignored;  // nodes; may stand before every text of a rule, and at the end
  std::string start;

  uint32_t add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<uint32_t>(nodes.size() - 1);
  }
};

enum class EbnfSyntax : uint8_t {
  // `name ::= ...` with "texts", [classes], `.`, groups, `|`, `*` `+` `?` `{n}` `{n,}` `{n,m}`, #
  // comments; the rule `root` is the whole. A rule goes on over line breaks until the next `::=`.
  kGbnf,
  // Lark without its parser's ways of naming trees: rules in lower and terminals in upper case,
  // "texts" and "texts"i, /expressions/ with the flags i, s and u, "a".."z", groups, [optional],
  // `*` `+` `?` `~ n` `~ n..m`, `->` names and priorities (both without effect), %ignore, and
  // %import of the module `common`; the rule `start` is the whole. All ways to cut a text into
  // terminals count, as with Lark's `dynamic_complete` lexer.
  kLark,
};

constexpr size_t kMaxEbnfBytes = 256u << 10;

// An error says the line: "line 3: the rule value is not defined".
core::Result<Ebnf> parse_gbnf(std::string_view text);
core::Result<Ebnf> parse_lark(std::string_view text);

// From node `from` the texts of the grammar, as UTF-8, up to the node that is returned. Rules may
// call each other at will, but one that calls itself before anything is read must do so at the
// beginning of an alternative of its own.
core::Result<uint32_t> add_ebnf(Grammar& grammar, uint32_t from, std::string_view text,
                                EbnfSyntax syntax);

core::Result<std::shared_ptr<const Grammar>> compile_ebnf(std::string_view text, EbnfSyntax syntax);

// The terminal of that name in Lark's module `common` as a regular expression; "" if there is none.
std::string_view lark_common(std::string_view name);

core::Error ebnf_error(uint32_t line, std::string message);

}  // namespace hadal::grammar
