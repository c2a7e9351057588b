#pragma once

#include <cstdint>

namespace hadal::cpu {

// Tiles of the many-rows product: kTilePanels panels by kTileBlocks blocks of weights are unpacked
// at a time (3 x 4 x 32 x 16 f32 = 24 KiB: half of a 48 KiB L1) and used for up to kTileRows rows,
// whose sums (48 KiB) lie in L2.
inline constexpr int64_t kTilePanels = 3;
inline constexpr int64_t kTileBlocks = 4;
inline constexpr int64_t kTileRows = 256;
inline constexpr int64_t kTileX = 8;  // rows of x unpacked at a time

inline constexpr int64_t kScratchWeights = kTilePanels * kTileBlocks * 32 * 16 * 4;
inline constexpr int64_t kScratchSums = kTileRows * kTilePanels * 16 * 4;
inline constexpr int64_t kScratchX = kTileX * kTileBlocks * 32 * 4;

// Up to kFewRows rows use no tile but unpacked rows of x (f32) of at most kFewRowsK elements.
inline constexpr int64_t kFewRows = 8;
inline constexpr int64_t kFewRowsK = 24576;

inline constexpr int64_t kScratchTiles = kScratchWeights + kScratchSums + kScratchX;
inline constexpr int64_t kScratchFew = 4 * kFewRowsK * 4;
inline constexpr int64_t kLinearScratchBytes =
    kScratchTiles > kScratchFew ? kScratchTiles : kScratchFew;

}  // namespace hadal::cpu
