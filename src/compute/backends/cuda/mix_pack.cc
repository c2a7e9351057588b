#include "compute/backends/cuda/mix_pack.h"

#include <algorithm>

#include "base/core/check.h"
#include "compute/formats/elements.h"

namespace hadal::cuda {

std::vector<uint16_t> pack_mix(const MixShape& shape, std::span<const float> fn) {
  constexpr int kPieces = 3, kLaneWidth = 8;
  const int64_t d = shape.d_hidden, k = MixShape::kStreams * d;
  HADAL_CHECK(static_cast<int64_t>(fn.size()) == MixShape::kOutputs * k, "hc fn");
  std::vector<uint16_t> out(static_cast<size_t>(shape.packed_bytes()) / 2);
  uint16_t* unit = out.data();
  const auto unit_of = [&](int chunk, int half, int stream) {
    for (int column = 0; column < MixShape::kOutputs; ++column) {
      for (int t = 0; t < 4; ++t) {
        const float* from = fn.data() + column * k + stream * d + chunk * MixShape::kChunk +
                            half * 32 + t * kLaneWidth;
        for (int i = 0; i < kLaneWidth; ++i) {
          float rest = from[i];
          for (int piece = 0; piece < kPieces; ++piece) {
            const int at = piece * MixShape::kOutputs + column;
            const uint16_t bits = formats::bf16_from_float(rest);
            unit[((at / 8) * 32 + (at % 8) * 4 + t) * kLaneWidth + i] = bits;
            rest -= formats::bf16_to_float(bits);
          }
        }
      }
    }
    unit += MixShape::kUnitBytes / 2;
  };
  for (int first = 0; first < shape.n_chunks(); first += MixShape::kGroupChunks) {
    const int end = std::min(shape.n_chunks(), first + MixShape::kGroupChunks);
    for (int part = 0; part < MixShape::kParts; ++part)
      for (int chunk = first; chunk < end; ++chunk)
        for (int j = 0; j < 2; ++j) unit_of(chunk, part / 2, part % 2 * 2 + j);
  }
  return out;
}

}  // namespace hadal::cuda
