#include "engine/kv/miss.h"

#include <algorithm>

namespace hadal::kv {

MissMemory::MissMemory(uint32_t n_blocks, uint32_t block_tokens)
    : block_tokens_(block_tokens), tokens_(n_blocks) {}

uint64_t MissMemory::plain_hash(std::span<const types::TokenId> block) const {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a: a hint for a text, not a name
  for (const types::TokenId id : block) {
    hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3u;
  }
  return hash;
}

void MissMemory::on_seal(BlockId block, uint32_t index, const BlockHash& hash,
                         std::span<const types::TokenId> tokens, const ChainSalt& salt) {
  const auto own = tokens.subspan(size_t{index} * block_tokens_, block_tokens_);
  std::unique_ptr<types::TokenId[]>& kept = tokens_[static_cast<uint32_t>(block)];
  if (!kept) kept = std::make_unique<types::TokenId[]>(block_tokens_);
  std::copy(own.begin(), own.end(), kept.get());
  if (index > 0) return;
  if (first_.size() >= kMaxFirstBlocks) first_.clear();
  if (latest_of_tenant_.size() >= kMaxFirstBlocks) latest_of_tenant_.clear();
  first_[plain_hash(own)] = {hash, salt.tenant, salt.pictures};
  latest_of_tenant_[salt.tenant] = hash;
}

MissMemory::Reason MissMemory::compare(std::span<const types::TokenId> tokens, uint32_t n_matched,
                                       NodeId other, const PrefixCache& prefixes) const {
  const auto& kept = tokens_[static_cast<uint32_t>(prefixes.block_of(other))];
  const size_t from = size_t{n_matched} * block_tokens_;
  for (size_t i = 0; i < block_tokens_ && from + i < tokens.size(); ++i) {
    if (kept[i] != tokens[from + i])
      return {types::CacheMiss::kDiverged, static_cast<uint32_t>(from + i)};
  }
  return {types::CacheMiss::kImage, 0};  // the same tokens under another name
}

MissMemory::Reason MissMemory::explain(std::span<const types::TokenId> tokens,
                                       std::span<const BlockHash> chain,
                                       const PrefixCache::Match& match, const ChainSalt& salt,
                                       const PrefixCache& prefixes) const {
  using types::CacheMiss;
  if (match.n_resident * size_t{block_tokens_} + block_tokens_ >= tokens.size()) return {};
  if (match.n_known > match.n_resident) return {CacheMiss::kEvicted, 0};
  const uint32_t n = match.n_resident;
  if (n > 0) {
    const NodeId other = prefixes.latest_child(prefixes.find(chain[n - 1]));
    // Nothing follows: the cached text was a beginning of this one.
    if (other == kNoNode) return {CacheMiss::kDiverged, n * block_tokens_};
    return compare(tokens, n, other, prefixes);
  }
  const auto seen =
      first_.find(plain_hash(tokens.first(std::min<size_t>(block_tokens_, tokens.size()))));
  if (seen != first_.end()) {
    const NodeId node = prefixes.find(seen->second.hash);
    if (node != kNoNode && seen->second.tenant != salt.tenant) return {CacheMiss::kSalt, 0};
    if (node != kNoNode && seen->second.pictures != salt.pictures) return {CacheMiss::kImage, 0};
    return {CacheMiss::kEvicted, 0};
  }
  const auto latest = latest_of_tenant_.find(salt.tenant);
  if (latest == latest_of_tenant_.end()) return {CacheMiss::kCold, 0};
  const NodeId node = prefixes.find(latest->second);
  if (node == kNoNode || prefixes.block_of(node) == kNoBlock) return {CacheMiss::kCold, 0};
  const Reason reason = compare(tokens, 0, node, prefixes);
  // Another text from its first tokens on is no near miss.
  return reason.first_different_token == 0 ? Reason{CacheMiss::kCold, 0} : reason;
}

}  // namespace hadal::kv
