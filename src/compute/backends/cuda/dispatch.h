#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/product.h"

namespace hadal::cuda {

// The rows of a step grouped by expert, made on the device: place i of the list is one (row,
// choice), ascending by expert and then by row.
struct Dispatch {
  int32_t* row = nullptr;    // [n] row of place i
  float* weight = nullptr;   // [n]
  int32_t* place = nullptr;  // [T, top_k] place of a choice
  int32_t* first = nullptr;  // [n_experts + 1] first place of an expert
  RowTile* tiles = nullptr;  // at most max_tiles()
  int32_t* n_tiles = nullptr;
};

// Tiles of up to kTileRows rows of one expert, for n places.
inline int32_t max_row_tiles(int64_t n_places, int64_t n_experts) {
  const int64_t experts = n_places < n_experts ? n_places : n_experts;
  return static_cast<int32_t>(experts + n_places / kTileRows);
}

// expert [T, top_k] (stride elements between rows), each id below n_experts <= kMaxExperts.
inline constexpr int32_t kMaxExperts = 1024;
void launch_dispatch(const int32_t* expert, int64_t expert_stride, const float* weight,
                     int64_t weight_stride, int32_t n_rows, int32_t top_k, int32_t n_experts,
                     const Dispatch& out, cudaStream_t stream);

}  // namespace hadal::cuda
