#include "engine/kv/snapshots.h"

#include <algorithm>

namespace hadal::kv {

std::optional<Snapshots::Found> Snapshots::longest(std::span<const BlockHash> chain,
                                                   uint32_t n_blocks, uint32_t depth) {
  if (by_hash_.empty()) return std::nullopt;
  for (uint32_t n = std::min<uint32_t>(n_blocks, static_cast<uint32_t>(chain.size())); n > 0; --n) {
    const auto found = by_hash_.find(chain[n - 1]);
    if (found == by_hash_.end() || found->second->depth > depth) continue;
    by_age_.splice(by_age_.end(), by_age_, found->second);
    return Found{found->second->place, n};
  }
  return std::nullopt;
}

bool Snapshots::has(const BlockHash& hash, uint32_t depth) const {
  const auto found = by_hash_.find(hash);
  return found != by_hash_.end() && found->second->depth <= depth;
}

std::optional<uint32_t> Snapshots::put(const BlockHash& hash, uint32_t depth) {
  if (n_places_ == 0) return std::nullopt;
  drop(hash);
  uint32_t place = 0;
  if (!free_.empty()) {
    place = free_.back();
    free_.pop_back();
  } else if (n_used_ < n_places_) {
    place = n_used_++;
  } else {
    place = by_age_.front().place;
    by_hash_.erase(by_age_.front().hash);
    by_age_.pop_front();
  }
  by_age_.push_back({hash, place, depth});
  by_hash_[hash] = std::prev(by_age_.end());
  return place;
}

void Snapshots::drop(const BlockHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return;
  free_.push_back(found->second->place);
  by_age_.erase(found->second);
  by_hash_.erase(found);
}

void Snapshots::clear() {
  by_hash_.clear();
  by_age_.clear();
  free_.clear();
  n_used_ = 0;
}

}  // namespace hadal::kv
