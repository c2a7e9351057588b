#include "engine/kv/node_table.h"

#include <algorithm>

#include "base/core/check.h"

namespace hadal::kv {

NodeTable::NodeTable(uint32_t max_nodes)
    : max_nodes_(std::max(max_nodes, 16u)),
      // Three quarters full at most: about four probes for a name that is not there.
      index_(static_cast<size_t>(max_nodes_) + max_nodes_ / 3 + 16, kNil) {
  nodes_.reserve(std::min(max_nodes_, 1u << 16));
}

uint32_t NodeTable::find(const BlockHash& hash) const {
  for (size_t i = home(hash);; i = i + 1 == index_.size() ? 0 : i + 1) {
    if (index_[i] == kNil) return kNil;
    if (nodes_[index_[i]].hash == hash) return index_[i];
  }
}

uint32_t NodeTable::add(const BlockHash& hash, uint32_t parent) {
  HADAL_CHECK(n_nodes_ < max_nodes_, "block names: table full");
  uint32_t at = free_;
  if (at != kNil) {
    free_ = nodes_[at].next;
  } else {
    if (nodes_.size() == nodes_.capacity())  // no doubling near the end: memory is planned
      nodes_.reserve(std::min<size_t>(max_nodes_, nodes_.size() * 2));
    at = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back();
  }
  nodes_[at] = Node{};
  nodes_[at].hash = hash;
  nodes_[at].parent = parent;
  nodes_[at].flags = kKnown;
  if (parent != kNil) ++nodes_[parent].n_children;
  size_t i = home(hash);
  while (index_[i] != kNil) i = i + 1 == index_.size() ? 0 : i + 1;
  index_[i] = at;
  ++n_nodes_;
  return at;
}

void NodeTable::remove(uint32_t at) {
  Node& node = nodes_[at];
  HADAL_CHECK(node.n_children == 0 && !node.has(kResident), "forgetting a block that is in use");
  size_t hole = home(node.hash);
  while (index_[hole] != at) hole = hole + 1 == index_.size() ? 0 : hole + 1;
  // Moves back what probed past the hole, so that no search ends early.
  for (size_t i = hole;;) {
    i = i + 1 == index_.size() ? 0 : i + 1;
    if (index_[i] == kNil) break;
    const size_t want = home(nodes_[index_[i]].hash);
    const bool stays = hole <= i ? (hole < want && want <= i) : (hole < want || want <= i);
    if (stays) continue;
    index_[hole] = index_[i];
    hole = i;
  }
  index_[hole] = kNil;
  if (node.parent != kNil) --nodes_[node.parent].n_children;
  node = Node{};
  node.next = free_;
  free_ = at;
  --n_nodes_;
}

}  // namespace hadal::kv
