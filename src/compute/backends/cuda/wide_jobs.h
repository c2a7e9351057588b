#pragma once

#include <algorithm>
#include <cstdint>

#include "compute/backends/cuda/packed_places.h"

// How products of many rows (wide.h) are cut into jobs, and which kernel takes them. Pure and free
// of CUDA, so that it is tested without a GPU; compiled for the device with
// --expt-relaxed-constexpr.
namespace hadal::cuda {

// Rows [first, first + n_rows) of a list, multiplied by group `group` of the weights. `first` is a
// multiple of 8.
struct RowTile {
  int32_t group = 0, first = 0, n_rows = 0;
};
inline constexpr int kTileRows = 64;

// An expert's tiles of up to `most` rows: as few as there can be, and as even, in units of 8 rows.
struct TileCut {
  int32_t n_rows = 0, n_tiles = 0, octets = 0;

  constexpr TileCut(int32_t rows, int32_t most)
      : n_rows(rows), n_tiles((rows + most - 1) / most), octets((rows + 7) / 8) {}
  constexpr int32_t first(int32_t tile) const { return octets * tile / n_tiles * 8; }
  constexpr int32_t rows(int32_t tile) const {
    const int32_t end = first(tile + 1);
    return (end < n_rows ? end : n_rows) - first(tile);
  }
  constexpr int32_t most_rows() const {
    return n_tiles == 0 ? 0 : (octets + n_tiles - 1) / n_tiles * 8;
  }
};

// Classes of longer tiles (big_list.h): a tile of class c has up to kTileClassRows[c] rows. Those
// of one expert are of one class.
inline constexpr int kTileClasses = 5;
inline constexpr int32_t kTileClassRows[kTileClasses] = {192, 160, 128, 96, 64};
inline constexpr int32_t kLongTileRows = 192;
constexpr int32_t tile_class(int32_t n_rows) {
  return n_rows > 160 ? 0 : n_rows > 128 ? 1 : n_rows > 96 ? 2 : n_rows > 64 ? 3 : 4;
}
inline constexpr int kSuperTiles = 32;  // row tiles whose rows stay in L2 while all weights pass

// Room for the sums of slices where a product has too few outputs to fill the GPU by itself.
inline constexpr uint64_t kWideSliceBytes = 40 << 20;

// Rows grouped by expert (dispatch.h): places for `n_choices` of them, each expert's beginning at a
// multiple of 8, and tiles of up to kTileRows rows of one expert, at most.
constexpr int64_t max_places(int64_t n_choices, int64_t n_experts) {
  return (n_choices + 7 * std::min(n_choices, n_experts) + 7) / 8 * 8;
}
constexpr int64_t max_row_tiles(int64_t n_choices, int64_t n_experts) {
  return std::min(n_choices, n_experts) + n_choices / kTileRows;
}

// A row tile by `n_strips` strips of outputs, over slices of k.
struct WideJob {
  RowTile tile;
  int32_t first_strip = 0, n_strips = 0;
  int32_t first_slice = 0, last_slice = kSlices;
};

// Products without a list of tiles: every group of the weights takes all rows.
struct WideSpace {
  int32_t n_groups = 0, n_strips = 0;
  int32_t n_rows = 0;
  bool split = false;  // a job for each slice of k

  constexpr int32_t row_tiles() const { return (n_rows + kTileRows - 1) / kTileRows; }
};

// Of values, not of references as std::min: the address of one of the constants above does not
// exist on the device, and a kernel that takes it traps there.
constexpr int32_t fewer(int32_t a, int32_t b) {
  return a < b ? a : b;
}

constexpr int32_t strip_jobs(int32_t n_strips, int32_t strips) {
  return (n_strips + strips - 1) / strips;
}
constexpr int64_t count_wide_jobs(const WideSpace& s, int32_t strips) {
  return static_cast<int64_t>(s.n_groups) * s.row_tiles() * strip_jobs(s.n_strips, strips) *
         (s.split ? kSlices : 1);
}
// Job `index` of jobs of `strips` strips. A super tile's strips come one after the other, and for
// each of them its row tiles.
constexpr WideJob wide_job_at(const WideSpace& s, int32_t strips, int64_t index) {
  WideJob job;
  if (s.split) {
    job.first_slice = static_cast<int32_t>(index % kSlices);
    job.last_slice = job.first_slice + 1;
    index /= kSlices;
  }
  const int32_t across = strip_jobs(s.n_strips, strips);
  const int64_t of_group = static_cast<int64_t>(s.row_tiles()) * across;
  const auto group = static_cast<int32_t>(index / of_group);
  const auto rest = static_cast<int32_t>(index % of_group);
  const int32_t super = rest / (kSuperTiles * across);
  const int32_t in_super = rest % (kSuperTiles * across);
  const int32_t tiles = fewer(kSuperTiles, s.row_tiles() - super * kSuperTiles);
  const int32_t first = (super * kSuperTiles + in_super % tiles) * kTileRows;
  job.tile = {group, first, fewer(kTileRows, s.n_rows - first)};
  job.first_strip = in_super / tiles * strips;
  job.n_strips = fewer(strips, s.n_strips - job.first_strip);
  return job;
}

// Which kernel a product takes: jobs of twice the strips where there are enough of them; slices as
// jobs of their own where there are too few.
struct WideChoice {
  bool twice = false;
  bool split = false;
  int64_t max_jobs = 0;
};
// `strips` of a job of the smaller kernel. With a list, of at most `max_tiles` tiles, its length is
// not known: the larger kernel.
constexpr WideChoice choose_wide(const WideSpace& s, int32_t strips, bool listed, int64_t max_tiles,
                                 int64_t n_outputs, bool has_slices, int sm_count) {
  const int64_t tiles = listed ? max_tiles : static_cast<int64_t>(s.n_groups) * s.row_tiles();
  const int64_t large = tiles * strip_jobs(s.n_strips, 2 * strips);
  const int64_t small = tiles * strip_jobs(s.n_strips, strips);
  if (listed || large >= 2 * sm_count) return {true, false, large};
  const int64_t sums = static_cast<int64_t>(s.n_rows) * n_outputs;
  const bool split = small < sm_count && has_slices &&
                     static_cast<uint64_t>(sums) * kSlices * 4 <= kWideSliceBytes;
  return {false, split, split ? small * kSlices : small};
}

}  // namespace hadal::cuda
