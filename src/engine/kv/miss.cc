#include "engine/kv/miss.h"

#include <algorithm>

namespace hadal::kv {
namespace {

constexpr uint64_t kFnvPrime = 0x100000001B3u;

// FNV-1a: a hint for a text, not a name.
uint64_t plain_hash(std::span<const types::TokenId> block) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const types::TokenId id : block) hash = (hash ^ static_cast<uint32_t>(id)) * kFnvPrime;
  return hash;
}

uint64_t with_tenant(uint64_t hash, const std::string& tenant) {
  for (const char c : tenant) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

}  // namespace

MissMemory::MissMemory(uint32_t n_blocks, uint32_t block_tokens)
    : block_tokens_(block_tokens), tokens_(n_blocks) {}

void MissMemory::on_seal(BlockId block, uint32_t index, const BlockHash& hash,
                         std::span<const types::TokenId> tokens, const ChainSalt& salt) {
  const auto own = tokens.subspan(size_t{index} * block_tokens_, block_tokens_);
  std::unique_ptr<types::TokenId[]>& kept = tokens_[static_cast<uint32_t>(block)];
  if (!kept) kept = std::make_unique<types::TokenId[]>(block_tokens_);
  std::copy(own.begin(), own.end(), kept.get());
  if (index > 0) return;
  if (first_.size() >= kMaxFirstBlocks) first_.clear();
  if (latest_of_tenant_.size() >= kMaxFirstBlocks) latest_of_tenant_.clear();
  if (first_of_any_.size() >= kMaxFirstBlocks) first_of_any_.clear();
  const uint64_t plain = plain_hash(own);
  first_[with_tenant(plain, salt.tenant)] = {hash, salt.pictures};
  first_of_any_[plain] = {hash, salt.tenant};
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
  Reason reason = explain_first_block(tokens, salt, prefixes);
  const auto any = first_of_any_.find(plain_hash(tokens.first(block_tokens_)));
  if (any == first_of_any_.end() || any->second.tenant == salt.tenant) return reason;
  const NodeId node = prefixes.find(any->second.hash);
  reason.foreign = node != kNoNode && prefixes.block_of(node) != kNoBlock;
  return reason;
}

MissMemory::Reason MissMemory::explain_first_block(std::span<const types::TokenId> tokens,
                                                   const ChainSalt& salt,
                                                   const PrefixCache& prefixes) const {
  using types::CacheMiss;
  const auto seen = first_.find(with_tenant(plain_hash(tokens.first(block_tokens_)), salt.tenant));
  if (seen != first_.end()) {
    const NodeId node = prefixes.find(seen->second.hash);
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
