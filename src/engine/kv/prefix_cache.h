#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv/block_hash.h"

namespace hadal::kv {

enum class BlockId : uint32_t {};
inline constexpr BlockId kNoBlock{0xFFFFFFFFu};
enum class NodeId : uint32_t {};
inline constexpr NodeId kNoNode{0xFFFFFFFFu};

enum class Policy : uint8_t {
  kLru,         // least recently used, deepest first
  kTurnHazard,  // learns how long a prefix of each kind stays worth its place (docs/cache.md)
};

struct PrefixCacheOptions {
  uint32_t n_blocks = 0;  // of the pool
  Policy policy = Policy::kTurnHazard;
  // Evicted blocks that are remembered by name; nullopt: max(40,000, 4 n_blocks), less for pools of
  // more than a million blocks.
  std::optional<uint32_t> n_ghosts;
};

// What the cache knows of a request when it comes, before its blocks are inserted or touched.
struct Arrival {
  uint32_t n_known = 0;  // leading blocks seen before
  uint32_t turn = 1;     // of a conversation, from 1
  bool has_gap = false;
  double gap_s = 0;  // since its last turn
};

// What a request tells the policy when it touches its blocks.
struct Touch {
  double now_s = 0;              // any origin, never goes back
  uint32_t n_blocks = 0;         // of the whole request, the partial last one included
  bool last_is_partial = false;  // the final one of the chain is not full (traces only)
  uint32_t n_output = 0;         // generated tokens
  Arrival arrival;
};

// Which prefixes are in the pool, and which of them to give up: names, recency and statistics, no
// bytes. A node is a block name that is resident (has a BlockId) or a ghost (remembered).
//
// Thread safety: engine thread only.
// Invariants:
//  (1) a resident node's parent is resident, so that a chain's resident nodes are its beginning
//      (given that holders hold whole chains);
//  (2) a held node is never evicted;
//  (3) a parent is forgotten after its children.
class PrefixCache {
 public:
  explicit PrefixCache(const PrefixCacheOptions& options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    uint32_t n_resident = 0;  // leading blocks of the chain that are here
    uint32_t n_known = 0;     // the same with ghosts: the chain was seen so far
  };
  Match match(std::span<const BlockHash> chain) const;
  NodeId find(const BlockHash& hash) const;  // kNoNode if unknown
  BlockId block_of(NodeId node) const;       // kNoBlock for a ghost
  // The continuation of `node` that was touched last, if it is resident.
  NodeId latest_child(NodeId node) const;

  // Makes `hash` resident in `block`, held. REQUIRES: it is not resident; `parent` is resident or
  // kNoNode.
  NodeId insert(const BlockHash& hash, NodeId parent, BlockId block);
  void hold(NodeId node);    // first owner came
  void unhold(NodeId node);  // last owner went: may be evicted from now on
  // A request for this chain comes. Scores the directories, changes nothing else.
  Arrival arrive(std::span<const BlockHash> chain, double now_s);
  // A request is done with these blocks (or, in simulations, arrives). Learns, and renews them.
  void touch(std::span<const BlockHash> chain, const Touch& touch);
  // Gives up the block least worth keeping; nullopt if all resident ones are held.
  std::optional<BlockId> evict();

  uint32_t n_resident() const;
  uint32_t n_held() const;
  uint64_t n_evicted() const;
  uint64_t bytes() const;  // of all tables
  // Is the node in the directory that leads? For simulations: what it has refused already need not
  // be inserted.
  bool wanted(NodeId node) const;
  bool rule_leads() const;
  // Checks every invariant; slow. Aborts with the values if one is broken.
  void check_integrity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hadal::kv
