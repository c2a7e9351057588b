#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/core/result.h"
#include "engine/kv/prefix_cache.h"

namespace hadal::kv {

class BlockPool;

// One owner's claim on a block; gives it back when destroyed. Engine thread only.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoBlock)) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~BlockRef();
  BlockId id() const { return id_; }
  explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class BlockPool;
  BlockRef(BlockPool& pool, BlockId id) : pool_(&pool), id_(id) {}
  BlockPool* pool_ = nullptr;
  BlockId id_ = kNoBlock;
};

enum class BlockState : uint8_t {
  kFree,    // nobody's, nothing in it
  kHeld,    // owned by sequences, being filled or shared
  kCached,  // sealed, owned by nobody, found by its name
};

// Owns the ids of all KV blocks of one device pool. Bookkeeping only: it never touches block
// contents and knows no layer, head or dtype.
//
// Thread safety: engine thread only. Outlives its refs.
// Invariants:
//  (1) every block is in exactly one state, and their sum is the pool;
//  (2) kHeld  <=> owners(id) >= 1;
//  (3) kCached => owners(id) == 0 and the prefix cache finds it under its name;
//  (4) a sealed block is immutable until it is kFree again.
class BlockPool {
 public:
  BlockPool(uint32_t n_blocks, PrefixCache& prefixes);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Takes `n` blocks, evicting kCached ones (by the cache's policy) if needed, and appends them to
  // `out`. All or nothing: on kOverloaded the pool is unchanged.
  core::Status allocate(uint32_t n, std::vector<BlockRef>& out);
  // Another owner of a resident block.
  BlockRef share(NodeId node);
  // The block is full and will not change: gives it a name. If another block has the name already,
  // the caller's ref moves over to that one (the contents are equal bit for bit) and its own block
  // is freed. Returns the node.
  NodeId seal(BlockRef& ref, const BlockHash& hash, NodeId parent);
  // Frees every kCached block.
  void drop_cached();

  uint32_t n_blocks() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t n_cached() const { return prefixes_.n_resident() - prefixes_.n_held(); }
  uint32_t n_held() const { return n_blocks() - n_free() - n_cached(); }
  uint32_t n_available() const { return n_free() + n_cached(); }
  BlockState state(BlockId id) const;
  uint32_t owners(BlockId id) const { return blocks_[static_cast<uint32_t>(id)].n_owners; }
  uint64_t bytes() const;  // of this bookkeeping, the prefix cache's not included
  void check_integrity() const;

 private:
  friend class BlockRef;
  struct Block {
    uint32_t n_owners = 0;
    NodeId node = kNoNode;  // of a sealed block
  };
  void release(BlockId id);

  PrefixCache& prefixes_;
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
};

inline BlockRef::~BlockRef() {
  if (pool_ != nullptr) pool_->release(id_);
}

}  // namespace hadal::kv
