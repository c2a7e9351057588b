#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/regex_syntax.h"

namespace hadal::grammar {

// A deterministic automaton over code points. State 0 is the start; where no edge fits, the text is
// refused. Every state leads to one that accepts; no state at all: no text is accepted.
struct CharDfa {
  struct Edge {
    uint32_t low = 0, high = 0;  // code points, both ends included
    uint32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;  // in order, without overlap
    bool accepts = false;
  };
  std::vector<State> states;

  bool is_empty() const { return states.empty(); }
  bool accepts(std::string_view text) const;
};

// Bounds of everything here, so that no expression costs more than some ten milliseconds; beyond
// them kInvalidRequest says so.
constexpr size_t kMaxRegexNodes = 1u << 15, kMaxDfaStates = 1u << 13, kMaxDfaWork = 4u << 20;

enum class Match : uint8_t {
  kWhole,   // the whole text
  kSearch,  // some part of it
};
// Of the part `root` of an expression.
core::Result<CharDfa> make_dfa(const Regex& regex, uint32_t root, Match match);

// Parses and makes; an error names the character: `... (at character 7 of the expression)`.
core::Result<CharDfa> regex_dfa(std::string_view text, Match match, RegexFlags flags = {});

core::Result<CharDfa> intersection(const CharDfa& a, const CharDfa& b);
// All texts that `a` refuses.
CharDfa complement(const CharDfa& a);
// Texts of so many characters.
core::Result<CharDfa> length_dfa(uint32_t low, std::optional<uint32_t> high);

// How a character is written.
enum class Spelling : uint8_t {
  kRaw,   // UTF-8
  kJson,  // between the quotes of a JSON string: UTF-8, or the one escape that it needs
};
// From node `from` the texts of `dfa`, which is not empty, up to the node that is returned.
uint32_t add_dfa(Grammar& grammar, uint32_t from, const CharDfa& dfa, Spelling spelling);
// One character of [low, high] in its spelling.
void add_character(Grammar& grammar, uint32_t from, uint32_t low, uint32_t high, Spelling spelling,
                   uint32_t to, Grammar::Tails& tails);

}  // namespace hadal::grammar
