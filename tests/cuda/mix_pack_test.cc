#include "compute/backends/cuda/mix_pack.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "compute/formats/elements.h"

// The order of a mix's weights, read as the CUDA kernel reads it (boundary_mix.cuh): block (group,
// part), unit, column tile, lane.
namespace hadal::cuda {
namespace {

constexpr int kOutputs = MixShape::kOutputs, kStreams = MixShape::kStreams;

float value_of(int64_t i) {
  // 24 significant bits, many exponents, both signs.
  const auto mixed = static_cast<uint32_t>(i) * 2654435761u;
  const float v = static_cast<float>(mixed >> 8) * (i % 2 == 0 ? 0x1p-24f : -0x1p-24f);
  return v * static_cast<float>(1u << (mixed % 11));
}

struct Found {
  double sum = 0;
  int n = 0;
};

// What the kernel multiplies channel `channel` of stream `stream` by for output `output`.
std::vector<Found> read_as_the_kernel(const MixShape& shape, const std::vector<uint16_t>& packed) {
  std::vector<Found> found(static_cast<size_t>(kOutputs * kStreams * shape.d_hidden));
  for (int block = 0; block < shape.n_groups() * MixShape::kParts; ++block) {
    const int group = block / MixShape::kParts, part = block % MixShape::kParts;
    const int first_chunk = group * MixShape::kGroupChunks;
    const int n_units = 2 * std::min(MixShape::kGroupChunks, shape.n_chunks() - first_chunk);
    const uint16_t* weights =
        packed.data() +
        static_cast<int64_t>(first_chunk * 8 + part * n_units) * MixShape::kUnitBytes / 2;
    for (int u = 0; u < n_units; ++u) {
      const int stream = part % 2 * 2 + u % 2;
      for (int tile = 0; tile < 9; ++tile) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 8; ++i) {
            const int64_t channel = static_cast<int64_t>(first_chunk) * MixShape::kChunk +
                                    part / 2 * 32 + lane % 4 * 8 + u / 2 * MixShape::kChunk + i;
            const int output = tile % 3 * 8 + lane / 4;  // tiles 3 p ... are piece p
            const uint16_t bits = weights[((u * 9 + tile) * 32 + lane) * 8 + i];
            Found& f =
                found[static_cast<size_t>((output * kStreams + stream) * shape.d_hidden + channel)];
            f.sum += formats::bf16_to_float(bits);
            ++f.n;
          }
        }
      }
    }
  }
  return found;
}

TEST(MixPack, TheKernelFindsEveryWeightInThreePieces) {
  for (const int64_t d : {64, 320, 384, 704, 1280, 5120}) {
    const MixShape shape{d};
    std::vector<float> fn(static_cast<size_t>(kOutputs * kStreams * d));
    for (size_t i = 0; i < fn.size(); ++i) fn[i] = value_of(static_cast<int64_t>(i));
    const std::vector<uint16_t> packed = pack_mix(shape, fn);
    ASSERT_EQ(static_cast<int64_t>(packed.size()) * 2, shape.packed_bytes());
    const std::vector<Found> found = read_as_the_kernel(shape, packed);
    int64_t wrong = 0;
    for (size_t i = 0; i < fn.size(); ++i)
      wrong += found[i].n == 3 && found[i].sum == static_cast<double>(fn[i]) ? 0 : 1;
    EXPECT_EQ(wrong, 0) << "width " << d;
  }
}

TEST(MixPack, ShapesThatAreCut) {
  EXPECT_TRUE(mix_is_packed(4, 5120));
  EXPECT_TRUE(mix_is_packed(4, 64));
  EXPECT_FALSE(mix_is_packed(3, 5120));
  EXPECT_FALSE(mix_is_packed(4, 96));
  EXPECT_FALSE(mix_is_packed(4, 5184));
  EXPECT_FALSE(mix_is_packed(4, 0));
  EXPECT_EQ(MixShape{5120}.n_slices(), 8);
  EXPECT_EQ(MixShape{704}.n_groups(), 3);  // 11 chunks: 5, 5 and 1
}

}  // namespace
}  // namespace hadal::cuda
