#include "engine/kv/block_hash.h"

#include "base/core/check.h"
#include "base/core/sha256.h"

namespace hadal::kv {
namespace {

BlockHash first_128_bits(const core::Sha256Digest& digest) {
  BlockHash hash;
  std::memcpy(&hash.high, digest.data(), sizeof hash.high);
  std::memcpy(&hash.low, digest.data() + sizeof hash.high, sizeof hash.low);
  return hash;
}

void add_string(core::Sha256& sha, std::string_view text) {
  const uint64_t size = text.size();
  sha.add(&size, sizeof size);
  sha.add(text.data(), text.size());
}

BlockHash root_of(const ChainSalt& salt) {
  core::Sha256 sha;
  add_string(sha, "hadal block chain 1");
  add_string(sha, salt.fingerprint);
  add_string(sha, salt.tenant);
  return first_128_bits(sha.finish());
}

}  // namespace

void extend_chain(const ChainSalt& salt, uint32_t block_tokens, std::span<const int32_t> tokens,
                  const std::vector<bool>& image_rows, std::vector<BlockHash>& chain) {
  HADAL_CHECK(block_tokens > 0, "empty blocks");
  const size_t n_full = tokens.size() / block_tokens;
  if (chain.size() >= n_full) return;
  BlockHash before = chain.empty() ? root_of(salt) : chain.back();
  core::Sha256 sha;
  for (size_t b = chain.size(); b < n_full; ++b) {
    sha.add(&before, sizeof before);
    sha.add(tokens.data() + b * block_tokens, block_tokens * sizeof(int32_t));
    bool has_image = false;
    for (size_t i = b * block_tokens; i < (b + 1) * block_tokens && i < image_rows.size(); ++i) {
      if (!image_rows[i]) continue;
      const uint64_t row = i;
      sha.add(&row, sizeof row);
      has_image = true;
    }
    if (has_image) add_string(sha, salt.pictures);
    before = first_128_bits(sha.finish());
    chain.push_back(before);
  }
}

}  // namespace hadal::kv
