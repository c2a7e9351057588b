// Every known node is in exactly one of two lists: `recent` (resident, or member of the LRU or the
// rule's directory) or `ghosts`. Both are ordered by the last touch, and a touch goes from the
// deepest block of a chain to its first, so that a parent is always newer than its children: the
// oldest node that may be evicted never has a resident child.
#include "engine/kv/prefix_cache.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/core/check.h"
#include "engine/kv/node_table.h"

namespace hadal::kv {
namespace {

uint32_t ghosts_for(const PrefixCacheOptions& options) {
  if (options.n_ghosts) return *options.n_ghosts;
  const uint32_t n = options.n_blocks;
  if (n > 1'000'000) return n / 4;
  return std::max(40'000u, 4 * n);
}

uint32_t centiseconds(double seconds) {
  return static_cast<uint32_t>(std::max(0.0, seconds) * 100.0);
}

}  // namespace

struct PrefixCache::State {
  explicit State(const PrefixCacheOptions& o) : options(o), nodes(o.n_blocks + ghosts_for(o) + 1) {}
  PrefixCacheOptions options;
  NodeTable nodes;
  AgeList recent, ghosts;
  uint32_t n_resident = 0, n_held = 0;
  uint64_t n_evicted = 0;

  uint32_t add(const BlockHash& hash, uint32_t parent);
  void forget_oldest_ghost();
  void to_ghost(uint32_t at);
};

void PrefixCache::State::forget_oldest_ghost() {
  // A ghost whose children are known still (they were renewed while it was not) goes round again.
  for (uint32_t tries = ghosts.size; tries > 0; --tries) {
    const uint32_t at = ghosts.front;
    ghosts.erase(nodes, at);
    if (nodes[at].n_children == 0) {
      nodes.remove(at);
      return;
    }
    ghosts.push_back(nodes, at);
  }
  HADAL_CHECK(false, "block names: no ghost can be forgotten");
}

uint32_t PrefixCache::State::add(const BlockHash& hash, uint32_t parent) {
  while (nodes.n_nodes() >= nodes.max_nodes()) forget_oldest_ghost();
  const uint32_t at = nodes.add(hash, parent);
  if (parent != kNil) {
    Node& up = nodes[parent];
    up.last_child = at;
    if (up.n_branches < 255) ++up.n_branches;
  }
  return at;
}

void PrefixCache::State::to_ghost(uint32_t at) {
  recent.erase(nodes, at);
  ghosts.push_back(nodes, at);
}

PrefixCache::PrefixCache(const PrefixCacheOptions& options)
    : state_(std::make_unique<State>(options)) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Match PrefixCache::match(std::span<const BlockHash> chain) const {
  Match match;
  for (const BlockHash& hash : chain) {
    const uint32_t at = state_->nodes.find(hash);
    if (at == kNil) break;
    if (match.n_resident == match.n_known && state_->nodes[at].has(kResident)) ++match.n_resident;
    ++match.n_known;
  }
  return match;
}

NodeId PrefixCache::find(const BlockHash& hash) const {
  return NodeId{state_->nodes.find(hash)};
}

BlockId PrefixCache::block_of(NodeId node) const {
  return BlockId{state_->nodes[static_cast<uint32_t>(node)].block};
}

NodeId PrefixCache::latest_child(NodeId node) const {
  const auto parent = static_cast<uint32_t>(node);
  const uint32_t child = state_->nodes[parent].last_child;
  if (child == kNil || child >= state_->nodes.n_slots()) return kNoNode;
  const Node& found = state_->nodes[child];
  return found.has(kResident) && found.parent == parent ? NodeId{child} : kNoNode;
}

NodeId PrefixCache::insert(const BlockHash& hash, NodeId parent, BlockId block) {
  State& s = *state_;
  const auto up = static_cast<uint32_t>(parent);
  uint32_t at = s.nodes.find(hash);
  if (at == kNil) {
    at = s.add(hash, up);
  } else {
    HADAL_CHECK(!s.nodes[at].has(kResident), "a block name twice in the pool");
    s.ghosts.erase(s.nodes, at);
  }
  Node& node = s.nodes[at];
  node.flags |= kResident | kHeld;
  node.block = static_cast<uint32_t>(block);
  s.recent.push_back(s.nodes, at);
  ++s.n_resident;
  ++s.n_held;
  return NodeId{at};
}

void PrefixCache::hold(NodeId id) {
  Node& node = state_->nodes[static_cast<uint32_t>(id)];
  HADAL_CHECK(node.has(kResident) && !node.has(kHeld), "hold");
  node.flags |= kHeld;
  ++state_->n_held;
}

void PrefixCache::unhold(NodeId id) {
  Node& node = state_->nodes[static_cast<uint32_t>(id)];
  HADAL_CHECK(node.has(kResident) && node.has(kHeld), "unhold");
  node.flags &= static_cast<uint8_t>(~kHeld);
  --state_->n_held;
}

void PrefixCache::touch(std::span<const BlockHash> chain, const Touch& touch) {
  State& s = *state_;
  for (size_t j = chain.size(); j-- > 0;) {
    const uint32_t at = s.nodes.find(chain[j]);
    if (at == kNil) continue;
    Node& node = s.nodes[at];
    node.touched = centiseconds(touch.now_s);
    (node.has(kResident) ? s.recent : s.ghosts).erase(s.nodes, at);
    (node.has(kResident) ? s.recent : s.ghosts).push_back(s.nodes, at);
    if (node.parent != kNil) s.nodes[node.parent].last_child = at;
  }
}

void PrefixCache::evict(NodeId id) {
  State& s = *state_;
  const auto at = static_cast<uint32_t>(id);
  Node& node = s.nodes[at];
  HADAL_CHECK(node.has(kResident) && !node.has(kHeld), "evicting a block in use");
  node.flags &= static_cast<uint8_t>(~kResident);
  node.block = kNil;
  --s.n_resident;
  ++s.n_evicted;
  s.to_ghost(at);
}

std::optional<BlockId> PrefixCache::evict() {
  State& s = *state_;
  if (s.n_held == s.n_resident) return std::nullopt;
  while (s.nodes[s.recent.front].has(kHeld)) {  // in use, hence not old
    const uint32_t at = s.recent.front;
    s.recent.erase(s.nodes, at);
    s.recent.push_back(s.nodes, at);
  }
  const uint32_t at = s.recent.front;
  const BlockId block{s.nodes[at].block};
  evict(NodeId{at});
  return block;
}

uint32_t PrefixCache::n_resident() const {
  return state_->n_resident;
}
uint32_t PrefixCache::n_held() const {
  return state_->n_held;
}
uint64_t PrefixCache::n_evicted() const {
  return state_->n_evicted;
}
uint64_t PrefixCache::bytes() const {
  return state_->nodes.bytes();
}
bool PrefixCache::wanted(NodeId) const {
  return true;
}

void PrefixCache::check_integrity() const {
  const State& s = *state_;
  uint32_t n_known = 0, n_resident = 0, n_held = 0;
  for (uint32_t at = 0; at < s.nodes.n_slots(); ++at) {
    const Node& node = s.nodes[at];
    if (!node.has(kKnown)) continue;
    ++n_known;
    HADAL_CHECK(s.nodes.find(node.hash) == at, fmt::format("node {} is not found by name", at));
    HADAL_CHECK(node.has(kResident) == (node.block != kNil), fmt::format("node {}: block", at));
    if (node.has(kResident)) ++n_resident;
    if (node.has(kHeld)) {
      ++n_held;
      HADAL_CHECK(node.has(kResident), fmt::format("node {} is held but not here", at));
    }
    if (node.parent == kNil) continue;
    const Node& up = s.nodes[node.parent];
    HADAL_CHECK(up.has(kKnown), fmt::format("node {} has lost its parent", at));
    HADAL_CHECK(!node.has(kResident) || up.has(kResident),
                fmt::format("node {} is here, its parent {} is not", at, node.parent));
  }
  HADAL_CHECK(n_known == s.nodes.n_nodes() && n_resident == s.n_resident && n_held == s.n_held,
              fmt::format("names {} of {}, resident {} of {}, held {} of {}", n_known,
                          s.nodes.n_nodes(), n_resident, s.n_resident, n_held, s.n_held));
  HADAL_CHECK(s.recent.size + s.ghosts.size == n_known, "lists do not hold every name");
}

}  // namespace hadal::kv
