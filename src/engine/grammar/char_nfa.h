#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/grammar/regex_syntax.h"

namespace hadal::grammar {

// A regular expression as a graph over code points.
struct CharNfa {
  enum class Free : uint8_t {
    kAlways,
    kAtBegin,
    kAtEnd
  };  // where an edge that reads nothing holds
  struct Node {
    const CharSet* chars = nullptr;  // read one of these and go to `to`; null: only free edges
    uint32_t to = 0;
    std::vector<std::pair<uint32_t, Free>> free;
  };
  std::vector<Node> nodes;
  uint32_t start = 0, end = 0;
};

// Of the part `root` of an expression. nullopt: more than `max_nodes`. Points into `regex`, which
// must stay.
std::optional<CharNfa> make_nfa(const Regex& regex, uint32_t root, size_t max_nodes);

}  // namespace hadal::grammar
