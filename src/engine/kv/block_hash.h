#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hadal::kv {

// Names a block's contents: the first 128 bits of a SHA-256 over its tokens and the name of the
// block before it, hence over the whole prefix. A cryptographic hash, since an equal name of
// unequal prefixes would answer one tenant with another's context.
struct BlockHash {
  uint64_t high = 0, low = 0;
  bool operator==(const BlockHash&) const = default;
};

// What a prefix must share besides its tokens to be the same prefix.
struct ChainSalt {
  std::string fingerprint;  // of weights, layout and anything else that changes cached bits
  std::string tenant;
  std::string pictures;  // hash of the request's pictures; counts from the first image row on
};

// Names of the full blocks of `tokens`, each from the one before. `image_rows` is empty or has a
// flag for every token; blocks that hold image rows take `salt.pictures` in.
// Extends `chain` from where it stands, so that a sequence names its blocks as they fill.
void extend_chain(const ChainSalt& salt, uint32_t block_tokens, std::span<const int32_t> tokens,
                  const std::vector<bool>& image_rows, std::vector<BlockHash>& chain);

}  // namespace hadal::kv
