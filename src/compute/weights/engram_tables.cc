#include "compute/weights/engram_tables.h"

#include <limits>
#include <unordered_set>

#include <fmt/format.h>

namespace hadal::weights {
namespace {

using uint128 = unsigned __int128;

// numpy's SeedSequence (O'Neill's seed_seq mixing): 32-bit words of entropy to a pool of four, then
// words out of it.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 2> entropy = {static_cast<uint32_t>(seed),
                                             static_cast<uint32_t>(seed >> 32)};
    const size_t n_words = entropy[1] != 0 ? 2 : 1;
    uint32_t hash = 0x43b0d7e5u;
    const auto hashed = [&hash](uint32_t value) {
      value ^= hash;
      hash *= 0x931e8875u;
      value *= hash;
      return value ^ (value >> 16);
    };
    const auto mixed = [](uint32_t x, uint32_t y) {
      const uint32_t result = 0xca01f9ddu * x - 0x4973f715u * y;
      return result ^ (result >> 16);
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hashed(i < n_words ? entropy[i] : 0);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mixed(pool_[to], hashed(pool_[from]));
      }
    }
  }

  std::array<uint64_t, 4> generate() const {
    uint32_t hash = 0x8b51f9ddu;
    std::array<uint32_t, 8> words;
    for (size_t i = 0; i < words.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ hash;
      hash *= 0x58f38dedu;
      value *= hash;
      words[i] = value ^ (value >> 16);
    }
    std::array<uint64_t, 4> out;
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = words[2 * i] | (uint64_t{words[2 * i + 1]} << 32);
    return out;
  }

 private:
  std::array<uint32_t, 4> pool_{};
};

// PCG64 (XSL-RR 128/64) as numpy seeds it.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = SeedSequence(seed).generate();
    increment_ = (((uint128{words[2]} << 64) | words[3]) << 1) | 1;
    state_ = 0;
    step();
    state_ += (uint128{words[0]} << 64) | words[1];
    step();
  }
  uint64_t next() {
    step();
    const auto value = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return (value >> turn) | (value << ((64 - turn) & 63));
  }

 private:
  void step() {
    constexpr uint128 kMultiplier = (uint128{2549297995355413924u} << 64) | 4865540595714422341u;
    state_ = state_ * kMultiplier + increment_;
  }
  uint128 state_ = 0, increment_ = 0;
};

bool is_prime(int64_t n) {
  if (n < 2) return false;
  for (int64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

}  // namespace

std::vector<int64_t> numpy_integers(uint64_t seed, int64_t bound, size_t n) {
  Pcg64 random(seed);
  const auto range = static_cast<uint64_t>(bound);
  std::vector<int64_t> out;
  if (range - 1 <= 0xffffffffu) {
    // Bounds of at most 32 bits draw half words, low half first (numpy's buffered uint32).
    bool has_half = false;
    uint32_t half = 0;
    const auto next32 = [&] {
      if (has_half) {
        has_half = false;
        return half;
      }
      const uint64_t word = random.next();
      has_half = true;
      half = static_cast<uint32_t>(word >> 32);
      return static_cast<uint32_t>(word);
    };
    const auto range32 = static_cast<uint32_t>(range);
    const uint32_t threshold = (0u - range32) % range32;
    while (out.size() < n) {
      const uint64_t product = uint64_t{next32()} * range32;
      if (static_cast<uint32_t>(product) >= threshold)
        out.push_back(static_cast<int64_t>(product >> 32));
    }
    return out;
  }
  const uint64_t threshold = (0u - range) % range;
  while (out.size() < n) {
    const uint128 product = uint128{random.next()} * range;
    if (static_cast<uint64_t>(product) >= threshold)
      out.push_back(static_cast<int64_t>(product >> 64));
  }
  return out;
}

core::Result<std::vector<EngramHash>> make_engram_hashes(const ModelConfig& config) {
  const EngramConfig& engram = config.engram;
  std::vector<EngramHash> hashes;
  std::unordered_set<int64_t> used;  // one set for all layers and sizes
  for (size_t l = 0; l < engram.layers.size(); ++l) {
    EngramHash hash;
    const int64_t bound = (std::numeric_limits<int64_t>::max() / engram.compressed_vocab) / 2;
    for (const int64_t x : numpy_integers(10007u * static_cast<uint64_t>(engram.layers[l]), bound,
                                          static_cast<size_t>(engram.max_ngram))) {
      hash.multipliers.push_back(2 * x + 1);
    }
    // More rows than the table has is a mismatch already: the search stops there.
    for (int32_t size = 2; size <= engram.max_ngram && hash.n_rows <= engram.n_rows[l]; ++size) {
      int64_t candidate = engram.vocab_base - 1;
      for (int32_t head = 0; head < engram.n_heads; ++head) {
        do {
          ++candidate;
        } while (!is_prime(candidate) || used.contains(candidate));
        used.insert(candidate);
        hash.offsets.push_back(hash.n_rows);
        hash.primes.push_back(candidate);
        hash.n_rows += candidate;
      }
    }
    if (hash.n_rows != engram.n_rows[l]) {
      return core::Error{
          core::Code::kInvalidRequest,
          fmt::format("text_config.engram_num_embeddings[{}]: is {}, but the primes from "
                      "engram_vocab_size {} on add up to {}; the hash would miss its rows",
                      l, engram.n_rows[l], engram.vocab_base, hash.n_rows),
          "engram_num_embeddings"};
    }
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

void engram_rows(const EngramHash& hash, const int64_t* ids, int64_t pad, int32_t n_heads,
                 int64_t* rows) {
  bool blocked = ids[0] < 0;
  int64_t z = (blocked ? pad : ids[0]) * hash.multipliers[0];
  for (size_t back = 1; back < hash.multipliers.size(); ++back) {
    blocked = blocked || ids[back] < 0;
    z ^= (blocked ? pad : ids[back]) * hash.multipliers[back];
    for (int32_t head = 0; head < n_heads; ++head) {
      const size_t column = (back - 1) * static_cast<size_t>(n_heads) + static_cast<size_t>(head);
      rows[column] = z % hash.primes[column] + hash.offsets[column];
    }
  }
}

}  // namespace hadal::weights
