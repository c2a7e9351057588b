#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/grammar/char_dfa.h"

// A character automaton as a part of a grammar of bytes.
namespace hadal::grammar {
namespace {

// What a character below 0x20, a quote or a backslash is in a JSON string.
std::string escaped(uint32_t code) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", code);
  }
}

}  // namespace

void add_character(Grammar& g, uint32_t from, uint32_t low, uint32_t high, Spelling spelling,
                   uint32_t to, Grammar::Tails& tails) {
  if (spelling == Spelling::kRaw) return g.character(from, low, high, to, tails);
  constexpr CharSet::Range kPlain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kMaxCode}};
  for (const CharSet::Range& plain : kPlain) {
    g.character(from, std::max(low, plain.low), std::min(high, plain.high), to, tails);
  }
  const auto escape = [&](uint32_t code) {
    if (low <= code && code <= high) g.free(g.literal(from, escaped(code)), to);
  };
  for (uint32_t code = low; code <= std::min(high, 0x1Fu); ++code) escape(code);
  escape('"');
  escape('\\');
}

uint32_t add_dfa(Grammar& g, uint32_t from, const CharDfa& dfa, Spelling spelling) {
  const uint32_t end = g.add_node();
  std::vector<uint32_t> node;
  node.reserve(dfa.states.size());
  for (size_t i = 0; i < dfa.states.size(); ++i) node.push_back(g.add_node());
  g.free(from, node[0]);
  Grammar::Tails tails;
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    for (const CharDfa::Edge& edge : dfa.states[i].edges) {
      add_character(g, node[i], edge.low, edge.high, spelling, node[edge.to], tails);
    }
    if (dfa.states[i].accepts) g.free(node[i], end);
  }
  return end;
}

}  // namespace hadal::grammar
