#include "engine/grammar/grammar.h"

#include <algorithm>
#include <array>

namespace hadal::grammar {

uint32_t Grammar::add_node() {
  nodes_.emplace_back();
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Grammar::add_rule() {
  starts_.push_back(add_node());
  return static_cast<uint32_t>(starts_.size() - 1);
}

void Grammar::bytes(uint32_t from, uint8_t low, uint8_t high, uint32_t to) {
  nodes_[from].edges.push_back(
      {.kind = Edge::Kind::kBytes, .low = low, .high = high, .rule = 0, .to = to});
}

uint32_t Grammar::literal(uint32_t from, std::string_view text) {
  for (const char c : text) {
    const uint32_t next = add_node();
    bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    from = next;
  }
  return from;
}

uint32_t Grammar::rule(uint32_t from, uint32_t other) {
  const uint32_t to = add_node();
  nodes_[from].edges.push_back(
      {.kind = Edge::Kind::kRule, .low = 0, .high = 0, .rule = other, .to = to});
  return to;
}

void Grammar::free(uint32_t from, uint32_t to) {
  nodes_[from].edges.push_back(
      {.kind = Edge::Kind::kFree, .low = 0, .high = 0, .rule = 0, .to = to});
}

namespace {

struct Encoded {
  std::array<uint8_t, 4> bytes{};
  size_t size = 0;
};

Encoded encode(uint32_t code) {
  if (code < 0x80) return {{static_cast<uint8_t>(code)}, 1};
  const auto tail = [&](int shift) {
    return static_cast<uint8_t>(0x80 | ((code >> shift) & 0x3F));
  };
  if (code < 0x800) return {{static_cast<uint8_t>(0xC0 | (code >> 6)), tail(0)}, 2};
  if (code < 0x10000) return {{static_cast<uint8_t>(0xE0 | (code >> 12)), tail(6), tail(0)}, 3};
  return {{static_cast<uint8_t>(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)}, 4};
}

}  // namespace

// Splits the range until both ends have the same length and differ in whole tails only: then each
// byte position is one range.
void Grammar::character(uint32_t from, uint32_t low, uint32_t high, uint32_t to) {
  Tails tails;
  character(from, low, high, to, tails);
}

void Grammar::character(uint32_t from, uint32_t low, uint32_t high, uint32_t to, Tails& tails) {
  constexpr uint32_t kLast[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF, 0x10FFFF};
  if (low > high) return;
  if (low <= 0xDFFF && high >= 0xD800) {  // no surrogates in UTF-8
    if (low < 0xD800) character(from, low, 0xD7FF, to, tails);
    if (high > 0xDFFF) character(from, 0xE000, high, to, tails);
    return;
  }
  for (const uint32_t last : kLast) {
    if (low <= last && last < high) {
      character(from, low, last, to, tails);
      character(from, last + 1, high, to, tails);
      return;
    }
  }
  const Encoded a = encode(low), b = encode(high);
  for (size_t i = 1; i < a.size; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;  // of the last i bytes
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      character(from, low, low | mask, to, tails);
      character(from, (low | mask) + 1, high, to, tails);
      return;
    }
    if ((high & mask) != mask) {
      character(from, low, (high & ~mask) - 1, to, tails);
      character(from, high & ~mask, high, to, tails);
      return;
    }
  }
  // From the last byte to the first; what is left to read is told by the bytes' ranges.
  uint32_t next = to, left_low = 0, left_high = 0;
  for (size_t i = a.size; i-- > 1;) {
    left_low = (left_low << 8) | a.bytes[i];
    left_high = (left_high << 8) | b.bytes[i];
    const auto [known, is_new] = tails.try_emplace({left_low, left_high, to}, 0);
    if (is_new) {
      known->second = add_node();
      bytes(known->second, a.bytes[i], b.bytes[i], next);
    }
    next = known->second;
  }
  bytes(from, a.bytes[0], b.bytes[0], next);
}

// A node leads to a text if it ends, or one of its edges leads to such a node, by a rule that has a
// text itself.
bool Grammar::remove_dead_ends() {
  const size_t n = nodes_.size();
  std::vector<std::vector<uint32_t>> before(n);  // whose edges wait for this node
  for (uint32_t node = 0; node < n; ++node) {
    for (const Edge& edge : nodes_[node].edges) {
      before[edge.to].push_back(node);
      if (edge.kind == Edge::Kind::kRule) before[starts_[edge.rule]].push_back(node);
    }
  }
  std::vector<bool> lives(n);
  std::vector<uint32_t> work;
  const auto is_open = [&](const Edge& edge) {
    return lives[edge.to] && (edge.kind != Edge::Kind::kRule || lives[starts_[edge.rule]]);
  };
  const auto revive = [&](uint32_t node) {
    lives[node] = true;
    work.push_back(node);
  };
  for (uint32_t node = 0; node < n; ++node) {
    if (nodes_[node].ends) revive(node);
  }
  while (!work.empty()) {
    const uint32_t at = work.back();
    work.pop_back();
    for (const uint32_t node : before[at]) {
      if (!lives[node] &&
          std::any_of(nodes_[node].edges.begin(), nodes_[node].edges.end(), is_open))
        revive(node);
    }
  }
  for (Node& node : nodes_) {
    std::erase_if(node.edges, [&](const Edge& edge) { return !is_open(edge); });
  }
  return lives[starts_[0]];
}

// A node with one free edge and nothing else is its target. So a call with nothing behind it but
// the end is seen to be the last, and needs no return (automaton.cc).
void Grammar::skip_free_nodes() {
  std::vector<uint32_t> target(nodes_.size());
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    uint32_t at = node;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const Node& here = nodes_[at];
      if (here.ends || here.edges.size() != 1 || here.edges[0].kind != Edge::Kind::kFree) break;
      at = here.edges[0].to < node ? target[here.edges[0].to] : here.edges[0].to;
      if (at == node) break;  // a circle
    }
    target[node] = at;
  }
  for (Node& node : nodes_) {
    for (Edge& edge : node.edges) edge.to = target[edge.to];
  }
  for (uint32_t& start : starts_) start = target[start];
}

core::Result<std::shared_ptr<const Grammar>> finish(std::shared_ptr<Grammar> grammar) {
  if (!grammar->remove_dead_ends()) {
    return core::Error{core::Code::kInvalidRequest, "no text can satisfy this"};
  }
  grammar->skip_free_nodes();
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

}  // namespace hadal::grammar
