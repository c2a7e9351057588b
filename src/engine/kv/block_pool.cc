#include "engine/kv/block_pool.h"

#include <fmt/format.h>

#include "base/core/check.h"

namespace hadal::kv {

BlockPool::BlockPool(uint32_t n_blocks, PrefixCache& prefixes)
    : prefixes_(prefixes), blocks_(n_blocks) {
  free_.reserve(n_blocks);
  for (uint32_t i = n_blocks; i-- > 0;) free_.push_back(BlockId{i});
}

BlockPool::~BlockPool() {
  HADAL_CHECK(n_held() == 0, "a block pool dies before its owners");
}

core::Status BlockPool::allocate(uint32_t n, std::vector<BlockRef>& out) {
  if (n > n_available())
    return core::Error{core::Code::kOverloaded, fmt::format("{} blocks wanted, {} of {} available",
                                                            n, n_available(), n_blocks())};
  for (uint32_t i = 0; i < n; ++i) {
    if (free_.empty()) {
      const std::optional<BlockId> victim = prefixes_.evict();
      HADAL_CHECK(victim.has_value(), "no block to evict");
      blocks_[static_cast<uint32_t>(*victim)].node = kNoNode;
      free_.push_back(*victim);
    }
    const BlockId id = free_.back();
    free_.pop_back();
    blocks_[static_cast<uint32_t>(id)].n_owners = 1;
    out.push_back(BlockRef(*this, id));
  }
  return {};
}

BlockRef BlockPool::share(NodeId node) {
  const BlockId id = prefixes_.block_of(node);
  HADAL_CHECK(id != kNoBlock, "sharing a block that is not here");
  Block& block = blocks_[static_cast<uint32_t>(id)];
  if (block.n_owners++ == 0) prefixes_.hold(node);
  return BlockRef(*this, id);
}

NodeId BlockPool::seal(BlockRef& ref, const BlockHash& hash, NodeId parent) {
  const NodeId known = prefixes_.find(hash);
  if (known != kNoNode && prefixes_.block_of(known) != kNoBlock) {
    ref = share(known);
    return known;
  }
  Block& block = blocks_[static_cast<uint32_t>(ref.id())];
  HADAL_CHECK(block.node == kNoNode && block.n_owners == 1, "sealing a block twice");
  block.node = prefixes_.insert(hash, parent, ref.id());
  return block.node;
}

void BlockPool::release(BlockId id) {
  Block& block = blocks_[static_cast<uint32_t>(id)];
  HADAL_CHECK(block.n_owners > 0, "releasing a block that nobody owns");
  if (--block.n_owners > 0) return;
  if (block.node != kNoNode) {
    prefixes_.unhold(block.node);
  } else {
    free_.push_back(id);
  }
}

void BlockPool::drop_cached() {
  while (const std::optional<BlockId> id = prefixes_.evict()) {
    blocks_[static_cast<uint32_t>(*id)].node = kNoNode;
    free_.push_back(*id);
  }
}

BlockState BlockPool::state(BlockId id) const {
  const Block& block = blocks_[static_cast<uint32_t>(id)];
  if (block.n_owners > 0) return BlockState::kHeld;
  return block.node == kNoNode ? BlockState::kFree : BlockState::kCached;
}

uint64_t BlockPool::bytes() const {
  return blocks_.capacity() * sizeof(Block) + free_.capacity() * sizeof(BlockId);
}

void BlockPool::check_integrity() const {
  uint32_t n_free_blocks = 0, n_cached_blocks = 0;
  for (uint32_t i = 0; i < n_blocks(); ++i) {
    const Block& block = blocks_[i];
    const BlockState now = state(BlockId{i});
    if (now == BlockState::kFree) ++n_free_blocks;
    if (now == BlockState::kCached) ++n_cached_blocks;
    if (block.node != kNoNode)
      HADAL_CHECK(prefixes_.block_of(block.node) == BlockId{i},
                  fmt::format("block {} is not found under its name", i));
  }
  std::vector<bool> seen(blocks_.size());
  for (const BlockId id : free_) {
    HADAL_CHECK(!seen[static_cast<uint32_t>(id)] && state(id) == BlockState::kFree,
                fmt::format("block {} on the free list", static_cast<uint32_t>(id)));
    seen[static_cast<uint32_t>(id)] = true;
  }
  HADAL_CHECK(n_free_blocks == n_free() && n_cached_blocks == n_cached(),
              fmt::format("free {} of {}, cached {} of {}", n_free_blocks, n_free(),
                          n_cached_blocks, n_cached()));
  prefixes_.check_integrity();
}

}  // namespace hadal::kv
