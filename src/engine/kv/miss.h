#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/types/request.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/prefix_cache.h"

namespace hadal::kv {

// Why a prompt's cached part ended where it did. Keeps the tokens of sealed blocks (4 B a token,
// made when first needed) and the first blocks seen lately, without which nobody could say.
//
// What a client is told (`miss`) follows from what its own tenant has sent and from what was given
// up, never from what another tenant has sent.
//
// Thread safety: engine thread only.
class MissMemory {
 public:
  MissMemory(uint32_t n_blocks, uint32_t block_tokens);

  // A block was sealed; `index` is its place in the sequence, `salt` and `tokens` its sequence's.
  void on_seal(BlockId block, uint32_t index, const BlockHash& hash,
               std::span<const types::TokenId> tokens, const ChainSalt& salt);

  struct Reason {
    types::CacheMiss miss = types::CacheMiss::kNone;
    uint32_t first_different_token = 0;
    bool foreign = false;  // for operators: nothing matched, and it is here for another tenant
  };
  // `tokens` is the whole prompt, `chain` names its full blocks, of which `match` says what is
  // here.
  Reason explain(std::span<const types::TokenId> tokens, std::span<const BlockHash> chain,
                 const PrefixCache::Match& match, const ChainSalt& salt,
                 const PrefixCache& prefixes) const;

 private:
  struct FirstBlock {
    BlockHash hash;  // salted
    std::string pictures;
  };
  struct LatestSeal {
    BlockHash hash;  // salted
    std::string tenant;
  };
  static constexpr size_t kMaxFirstBlocks = 4096;
  Reason compare(std::span<const types::TokenId> tokens, uint32_t n_matched, NodeId other,
                 const PrefixCache& prefixes) const;
  Reason explain_first_block(std::span<const types::TokenId> tokens, const ChainSalt& salt,
                             const PrefixCache& prefixes) const;

  uint32_t block_tokens_;
  std::vector<std::unique_ptr<types::TokenId[]>> tokens_;        // by block
  std::unordered_map<uint64_t, FirstBlock> first_;               // by hash of tokens and tenant
  std::unordered_map<uint64_t, LatestSeal> first_of_any_;        // by hash of the tokens alone
  std::unordered_map<std::string, BlockHash> latest_of_tenant_;  // first block sealed last
};

}  // namespace hadal::kv
