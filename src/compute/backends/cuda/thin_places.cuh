#pragma once

#include <cstdint>

// The routes of a launch of few rows, sorted by every block for itself.
namespace hadal::cuda {

inline constexpr int kMaxPlaces = 128;

// Choices of rows, [n_rows, top_k] each.
struct Routes {
  const int32_t* expert;
  int64_t expert_stride;
  const float* weight;
  int64_t weight_stride;
  int32_t n_rows, top_k;
};

// (row, choice) pairs by expert, then by row. The pairs of one expert are a tile.
struct Places {
  int32_t tile_group[kMaxPlaces];      // expert of a tile
  int32_t tile_first[kMaxPlaces + 1];  // place of its first row
  int32_t row[kMaxPlaces];
  float weight[kMaxPlaces];
  int32_t n_tiles;
  int32_t id[kMaxPlaces];     // of a pair, while they are sorted
  bool is_first[kMaxPlaces];  // of its expert, in the order of rows
};

// Where a pair goes: pairs of smaller experts, pairs of its own before it, smaller experts.
struct PairRank {
  int32_t below = 0, among = 0, tile = 0;
};

__device__ __forceinline__ void set_place(const Routes& routes, int pair, int id, PairRank rank,
                                          Places& p, int32_t* place_of_pair) {
  const int row = pair / routes.top_k, choice = pair % routes.top_k;
  const int place = rank.below + rank.among;
  p.row[place] = row;
  p.weight[place] = routes.weight[row * routes.weight_stride + choice];
  if (rank.among == 0) {
    p.tile_group[rank.tile] = id;
    p.tile_first[rank.tile] = rank.below;
  }
  if (place_of_pair != nullptr) place_of_pair[pair] = place;
}

// Up to 32 pairs, by one warp.
__device__ __forceinline__ void sort_few_places(const Routes& routes, Places& p,
                                                int32_t* place_of_pair) {
  constexpr uint32_t kAll = 0xFFFFFFFFu;
  const int n = routes.n_rows * routes.top_k, i = threadIdx.x % 32;
  const bool used = i < n;
  const int id =
      used ? routes.expert[i / routes.top_k * routes.expert_stride + i % routes.top_k] : 0;
  PairRank rank;
  for (int j = 0; j < n; ++j) {
    const int other = __shfl_sync(kAll, id, j);
    rank.below += other < id;
    rank.among += other == id && j < i;
  }
  const uint32_t first = __ballot_sync(kAll, used && rank.among == 0);
  for (int j = 0; j < n; ++j) {
    const int other = __shfl_sync(kAll, id, j);
    rank.tile += (first >> j & 1u) != 0 && other < id;
  }
  if (used) set_place(routes, i, id, rank, p, place_of_pair);
  if (i == 0) {
    p.n_tiles = __popc(first);
    p.tile_first[p.n_tiles] = n;
  }
}

// By all threads of a block, kMaxPlaces at least; complete at the end. `place_of_pair`: null, or
// [n_rows, top_k] to be written.
__device__ __forceinline__ void sort_places(const Routes& routes, Places& p,
                                            int32_t* place_of_pair) {
  const int n = routes.n_rows * routes.top_k, i = threadIdx.x;
  if (n <= 32) {
    if (i < 32) sort_few_places(routes, p, place_of_pair);
    __syncthreads();
    return;
  }
  int id = 0;
  if (i < n)
    p.id[i] = id = routes.expert[i / routes.top_k * routes.expert_stride + i % routes.top_k];
  __syncthreads();
  PairRank rank;
  if (i < n) {
    for (int j = 0; j < n; ++j) {
      rank.below += p.id[j] < id;
      rank.among += p.id[j] == id && j < i;
    }
    p.is_first[i] = rank.among == 0;
  }
  __syncthreads();
  if (i < n) {
    int tiles = 0;
    for (int j = 0; j < n; ++j) {
      rank.tile += p.is_first[j] && p.id[j] < id;
      tiles += p.is_first[j];
    }
    set_place(routes, i, id, rank, p, place_of_pair);
    if (i == 0) {
      p.n_tiles = tiles;
      p.tile_first[tiles] = n;
    }
  }
  __syncthreads();
}

}  // namespace hadal::cuda
