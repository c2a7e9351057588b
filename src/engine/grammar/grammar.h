#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/core/result.h"

namespace hadal::grammar {

// A grammar over bytes: rules are graphs whose edges read a byte, or another rule. Built once,
// then constant. Node ids are global; a rule begins at one node and ends where a node is marked.
//
//   Grammar g;
//   const auto rule = g.add_rule();
//   const auto end = g.literal(g.start(rule), "{}");
//   g.mark_end(end);
class Grammar {
 public:
  struct Edge {
    enum class Kind : uint8_t { kBytes, kRule, kFree } kind = Kind::kBytes;
    uint8_t low = 0, high = 0;  // kBytes: the range, both ends included
    uint32_t rule = 0;          // kRule
    uint32_t to = 0;            // kFree: reads nothing
  };
  struct Node {
    std::vector<Edge> edges;
    bool ends = false;  // its rule may end here
  };

  // Not UTF-8: stands for the one control token that the texts of a grammar may hold (which one is
  // the caller's). No ordinary token has this byte where masks are made.
  static constexpr uint8_t kControl = 0xFF;

  // The first rule added is the root.
  uint32_t add_rule();
  uint32_t start(uint32_t rule) const { return starts_[rule]; }
  uint32_t add_node();
  void mark_end(uint32_t node) { nodes_[node].ends = true; }

  // Each reads something from `from` on; the ones without `to` return the node behind it.
  void bytes(uint32_t from, uint8_t low, uint8_t high, uint32_t to);
  uint32_t literal(uint32_t from, std::string_view text);
  uint32_t rule(uint32_t from, uint32_t other);
  void free(uint32_t from, uint32_t to);
  // One character of UTF-8 whose code point is in [low, high].
  void character(uint32_t from, uint32_t low, uint32_t high, uint32_t to);
  // The same with nodes that many characters share: keyed by what is left to read and where to.
  using Tails = std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t>;
  void character(uint32_t from, uint32_t low, uint32_t high, uint32_t to, Tails& tails);

  // Removes the edges that lead to no text, so that what has begun can end. False: nothing is left.
  bool remove_dead_ends();
  void skip_free_nodes();

  const std::vector<Node>& nodes() const { return nodes_; }
  size_t n_rules() const { return starts_.size(); }

 private:
  std::vector<Node> nodes_;
  std::vector<uint32_t> starts_;
};

// Without dead ends, constant from here on. kInvalidRequest: no text fits.
core::Result<std::shared_ptr<const Grammar>> finish(std::shared_ptr<Grammar> grammar);

}  // namespace hadal::grammar
