#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/wide.h"

namespace hadal::cuda {

// The rows of a step grouped by expert, made on the device. Place i of the list is one (row,
// choice), ascending by expert and then by row; the places of an expert begin at a multiple of 8.
// Behind them, from max_places() on, stand the step's rows once more, for the shared expert.
struct Dispatch {
  int32_t* row = nullptr;    // [max_places + T rounded up to 8] row of a place; kNoRow between an
                             // expert's last row and the next multiple of 8, kUnusedRow behind
  float* weight = nullptr;   // [max_places]
  int32_t* place = nullptr;  // [T, top_k] place of a choice
  RowTile* tiles = nullptr;  // [max_row_tiles] up to tile_rows rows of one expert
  int32_t* n_tiles = nullptr;
  // [kTileClasses], or null. Where tiles of a class end in `tiles`, which are then in the order of
  // classes; otherwise by expert.
  int32_t* class_ends = nullptr;
  int32_t* counts = nullptr;  // [kDispatchParts, n_experts] scratch
};
inline constexpr int32_t kDispatchParts = 64;

// expert [T, top_k] (stride elements between rows), each id below n_experts <= kMaxExperts.
// tile_rows: kTileRows, kLongTileRows or kFp8TileRows (fp8_places.h).
inline constexpr int32_t kMaxExperts = 1024;
void launch_dispatch(const int32_t* expert, int64_t expert_stride, const float* weight,
                     int64_t weight_stride, int32_t n_rows, int32_t top_k, int32_t n_experts,
                     int32_t tile_rows, const Dispatch& out, cudaStream_t stream);

}  // namespace hadal::cuda
