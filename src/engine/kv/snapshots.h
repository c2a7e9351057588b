#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/kv/block_hash.h"

namespace hadal::kv {

// Which window states are kept, by the name of the block that they end with. A capped pool of
// numbered places; the least recently used one is overwritten. Bytes are the runner's.
//
// Thread safety: engine thread only.
class Snapshots {
 public:
  explicit Snapshots(uint32_t n_places) : n_places_(n_places) {}

  struct Found {
    uint32_t place = 0;
    uint32_t n_blocks = 0;  // of the chain, before the state
  };
  // The longest beginning of `chain`, at most `n_blocks` blocks, whose state is kept and serves a
  // sequence whose rows run every layer from position `depth` on (step/README.md, I7). Renews it.
  std::optional<Found> longest(std::span<const BlockHash> chain, uint32_t n_blocks, uint32_t depth);
  bool has(const BlockHash& hash, uint32_t depth) const;
  // A place for the state after block `hash`; nullopt if the pool has none at all.
  std::optional<uint32_t> put(const BlockHash& hash, uint32_t depth);
  void drop(const BlockHash& hash);
  void clear();
  uint32_t n_kept() const { return static_cast<uint32_t>(by_hash_.size()); }
  uint32_t n_places() const { return n_places_; }

 private:
  struct Hasher {
    size_t operator()(const BlockHash& hash) const { return static_cast<size_t>(hash.low); }
  };
  struct Kept {
    BlockHash hash;
    uint32_t place = 0;
    uint32_t depth = 0;
  };
  uint32_t n_places_;
  uint32_t n_used_ = 0;
  std::vector<uint32_t> free_;
  std::list<Kept> by_age_;  // oldest first
  std::unordered_map<BlockHash, std::list<Kept>::iterator, Hasher> by_hash_;
};

}  // namespace hadal::kv
