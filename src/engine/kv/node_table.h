#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/block_hash.h"
#include "engine/kv/prefix_cache.h"

namespace hadal::kv {

inline constexpr uint32_t kNil = 0xFFFFFFFFu;

enum NodeFlag : uint8_t {
  kKnown = 1,
  kResident = 2,
  kHeld = 4,
  kInLru = 8,    // member of the directory that plain LRU would keep
  kInRule = 16,  // member of the directory that the learned rule keeps
};

// One block name. 64 bytes, so that ten million of them are 640 MB and a look-up is one line.
struct Node {
  BlockHash hash;
  uint32_t parent = kNil;
  uint32_t block = kNil;
  uint32_t touched = 0;                          // hundredths of a second
  uint32_t prev = kNil, next = kNil;             // in a list of the rule, or of strays
  uint32_t older = kNil, newer = kNil;           // by recency, or by age as a ghost
  uint32_t last_child = kNil;                    // touched last; check that it is still one
  uint32_t n_children = 0, n_rule_children = 0;  // known; members of the rule's directory
  uint16_t cell = 0;     // kind of the observation that its last touch began (hazard.h)
  uint16_t touch_n = 0;  // blocks of the request that touched last, at most 65535
  uint8_t bin = 0;       // of the rule's list that it is in
  uint8_t flags = 0;
  uint8_t n_touches = 0;       // at most 255; 0: no observation yet
  uint8_t turn : 4 = 0;        // at most 15
  uint8_t n_branches : 4 = 0;  // distinct continuations ever, at most 15

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};
static_assert(sizeof(Node) == 64);

// Nodes by name: an array with a free list, and an open-addressed index into it.
class NodeTable {
 public:
  explicit NodeTable(uint32_t max_nodes);

  uint32_t find(const BlockHash& hash) const;  // kNil if unknown
  uint32_t add(const BlockHash& hash, uint32_t parent);
  void remove(uint32_t at);

  Node& operator[](uint32_t at) { return nodes_[at]; }
  const Node& operator[](uint32_t at) const { return nodes_[at]; }
  uint32_t n_nodes() const { return n_nodes_; }
  uint32_t max_nodes() const { return max_nodes_; }
  uint32_t n_slots() const { return static_cast<uint32_t>(nodes_.size()); }
  uint64_t bytes() const {
    return nodes_.capacity() * sizeof(Node) + index_.capacity() * sizeof(uint32_t);
  }

 private:
  size_t home(const BlockHash& hash) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash.low) * index_.size()) >> 64);
  }
  uint32_t max_nodes_;
  uint32_t n_nodes_ = 0;
  uint32_t free_ = kNil;  // linked through Node::next
  std::vector<Node> nodes_;
  std::vector<uint32_t> index_;
};

// A list threaded through two links of the nodes; the oldest is at the front.
template <uint32_t Node::* Prev, uint32_t Node::* Next>
struct NodeList {
  uint32_t front = kNil, back = kNil, size = 0;

  void push_back(NodeTable& nodes, uint32_t at) {
    nodes[at].*Prev = back;
    nodes[at].*Next = kNil;
    (back == kNil ? front : nodes[back].*Next) = at;
    back = at;
    ++size;
  }
  void erase(NodeTable& nodes, uint32_t at) {
    Node& node = nodes[at];
    (node.*Prev == kNil ? front : nodes[node.*Prev].*Next) = node.*Next;
    (node.*Next == kNil ? back : nodes[node.*Next].*Prev) = node.*Prev;
    node.*Prev = node.*Next = kNil;
    --size;
  }
};
using AgeList = NodeList<&Node::older, &Node::newer>;
using RuleList = NodeList<&Node::prev, &Node::next>;

}  // namespace hadal::kv
