#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hadal::cuda {

// How the mix product of a hyper-connection site (docs/model.md 3.3) is cut: by channels, the same
// for every number of rows, because the cut is the order of the sum.
//
//   chunk   64 channels of all 4 streams
//   group   5 chunks (the last one may have fewer); a slice is two groups
//   part    of a group: one half (32 channels) of each chunk, two of the streams. A part is one
//           chain of matrix instructions, 16 channels each.
//   sum     slices in order; in a slice parts in order; of a part the group of even number first
//
// The weights are f32 and exact: each is a sum of three bf16 numbers, which makes 72 columns of 24.
struct MixShape {
  static constexpr int kStreams = 4, kOutputs = 24;
  static constexpr int kChunk = 64, kGroupChunks = 5, kParts = 4, kMaxSlices = 8;
  static constexpr int kColumns = 3 * kOutputs;
  static constexpr int kSliceChannels = 2 * kGroupChunks * kChunk;
  // A unit is 32 channels of one stream: [9 tiles of 8 columns][32 lanes][8 bf16]. Lane 4 g + t
  // holds channels 8 t to 8 t + 7 of column g, an operand of two matrix instructions.
  static constexpr int kUnitBytes = kColumns / 8 * 32 * 16;

  int64_t d_hidden = 0;

  constexpr int n_chunks() const { return static_cast<int>(d_hidden / kChunk); }
  constexpr int n_groups() const { return (n_chunks() + kGroupChunks - 1) / kGroupChunks; }
  constexpr int n_slices() const { return (n_groups() + 1) / 2; }
  constexpr int64_t packed_bytes() const { return int64_t{n_chunks()} * 2 * kStreams * kUnitBytes; }
};

// Shapes that are cut as above; others take the plain kernel.
constexpr bool mix_is_packed(int32_t n_streams, int64_t d_hidden) {
  return n_streams == MixShape::kStreams && d_hidden > 0 && d_hidden % MixShape::kChunk == 0 &&
         d_hidden <= MixShape::kMaxSlices * MixShape::kSliceChannels;
}

// fn: [24, 4 * d_hidden] f32, stream-major. Units in the order [group][part][chunk][stream of 2].
std::vector<uint16_t> pack_mix(const MixShape& shape, std::span<const float> fn);

}  // namespace hadal::cuda
