#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compute/weights/layout.h"

namespace hadal::weights {

// What a random tensor depends on besides its own name and shape.
struct RandomSource {
  uint64_t seed = 0;
  const ModelConfig* config = nullptr;
};

// The bytes [begin, begin + out.size()) of `tensor`, a function of (seed, name) and of the config:
// the same whatever the order and the pieces. `begin` and out.size() are multiples of
// kRandomPiece, except that the last piece of a tensor may be shorter.
inline constexpr uint64_t kRandomPiece = 4096;
void random_bytes(const RandomSource& source, const ExpectedTensor& tensor, uint64_t begin,
                  std::span<std::byte> out);

}  // namespace hadal::weights
