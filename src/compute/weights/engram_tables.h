#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compute/weights/model_config.h"

namespace hadal::weights {

// Constants of one Engram layer's hash (docs/model.md 3.9.2, 3.9.3). Column c = (n - 2) * n_heads +
// head for n-grams of size n.
struct EngramHash {
  std::vector<int64_t> multipliers;  // [max_ngram], one per look-back
  std::vector<int64_t> primes;       // [n_columns]
  std::vector<int64_t> offsets;      // [n_columns], running sum of this layer's primes
  int64_t n_rows = 0;                // their total: rows of the table
};

// One entry per config.engram.layers. kInvalidRequest if a table's size in the config is not the
// sum of its primes.
core::Result<std::vector<EngramHash>> make_engram_hashes(const ModelConfig& config);

// `n` draws of numpy's default_rng(seed).integers(0, bound, dtype=int64): SeedSequence, PCG64 and
// Lemire's bounded draw.
std::vector<int64_t> numpy_integers(uint64_t seed, int64_t bound, size_t n);

// Row ids of one position (3.9.4). `ids[i]` is the compressed id i tokens back, or -1 if that token
// is part of an image or lies before the sequence; `pad` replaces it and everything before it.
// rows: [n_columns].
void engram_rows(const EngramHash& hash, const int64_t* ids, int64_t pad, int32_t n_heads,
                 int64_t* rows);

}  // namespace hadal::weights
