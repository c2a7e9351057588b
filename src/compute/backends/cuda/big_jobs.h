#pragma once

#include <cstdint>
#include <initializer_list>

#include "compute/backends/cuda/packed_places.h"

// How products of hundreds of rows and more (big.h) are cut into jobs, and how large a job is. Pure
// and free of CUDA, so that it is tested without a GPU; compiled for the device with
// --expt-relaxed-constexpr.
namespace hadal::cuda {

inline constexpr int kBigStrips = 8;        // of 16 outputs: a job's 128
inline constexpr int kBigSuperRows = 2304;  // rows that stay in L2 while all weights pass

// Rows [first_row, first_row + n_rows) by strips [first_strip, first_strip + n_strips) of a group.
// n_strips may be 0: the block only keeps its neighbour of the cluster company.
struct BigJob {
  int32_t group = 0, first_row = 0, n_rows = 0, first_strip = 0, n_strips = 0;
};

// All rows by all outputs of every group, in tiles of `tile_rows` rows. The `cluster` blocks of a
// cluster take neighbouring outputs of one row tile.
struct BigSpace {
  int32_t n_groups = 0, n_strips = 0, n_rows = 0;
  int32_t tile_rows = 0, cluster = 1;

  constexpr int32_t row_tiles() const { return (n_rows + tile_rows - 1) / tile_rows; }
  // Turns of a cluster over the outputs of a row tile.
  constexpr int32_t across() const {
    const int32_t strips = kBigStrips * cluster;
    return (n_strips + strips - 1) / strips;
  }
  constexpr int32_t turns() const { return n_groups * row_tiles() * across(); }
};

// The job of block `rank` of the cluster that takes turn `index`. Row tiles are split evenly into
// super tiles; a super tile's outputs come one after the other, and for each of them its row tiles.
constexpr BigJob big_job_at(const BigSpace& s, int32_t index, int32_t rank) {
  const int32_t tiles = s.row_tiles(), across = s.across();
  const int32_t group = index / (tiles * across);
  int32_t rest = index % (tiles * across);
  const int32_t most = kBigSuperRows / s.tile_rows;
  const int32_t n_supers = (tiles + most - 1) / most;
  // The first `longer` super tiles have one row tile more than the others.
  const int32_t each = tiles / n_supers, longer = tiles % n_supers;
  int32_t first = 0, count = each + 1;
  if (rest < longer * (each + 1) * across) {
    first = rest / ((each + 1) * across) * (each + 1);
    rest %= (each + 1) * across;
  } else {
    rest -= longer * (each + 1) * across;
    count = each;
    first = longer * (each + 1) + rest / (each * across) * each;
    rest %= each * across;
  }
  BigJob job;
  job.group = group;
  job.first_row = (first + rest % count) * s.tile_rows;
  job.n_rows = s.n_rows - job.first_row < s.tile_rows ? s.n_rows - job.first_row : s.tile_rows;
  job.first_strip = (rest / count * s.cluster + rank) * kBigStrips;
  const int32_t left = s.n_strips - job.first_strip;
  job.n_strips = left < 0 ? 0 : left < kBigStrips ? left : kBigStrips;
  return job;
}

// Row tile and cluster of a launch: what takes the least time. A turn takes as long as kTurnRows
// rows beside its own (measured on an H200: 30, 35 and 42 us for 64, 128 and 192 rows of 5120
// inputs). Two blocks of a cluster read less of L2, but need an even number of output tiles.
inline constexpr int kTurnRows = 260;
constexpr BigSpace choose_big(int32_t n_groups, int32_t n_strips, int32_t n_rows,
                              int32_t sm_count) {
  BigSpace best = {n_groups, n_strips, n_rows, 192, 1};
  if ((n_strips + kBigStrips - 1) / kBigStrips % 2 == 0) best.cluster = 2;
  int64_t least = INT64_MAX;
  for (const int32_t tile : {192, 128, 64}) {
    BigSpace s = best;
    s.tile_rows = tile;
    const int32_t at_once = sm_count / s.cluster;
    const int64_t time =
        static_cast<int64_t>((s.turns() + at_once - 1) / at_once) * (kTurnRows + tile);
    if (time >= least) continue;
    least = time;
    best = s;
  }
  return best;
}
// True where jobs of 128 rows are for a sixth of the GPU or more: with fewer, wide.h is faster,
// which can make a job of a slice of k.
constexpr bool big_enough(int32_t n_groups, int32_t n_strips, int64_t n_rows, int32_t sm_count) {
  const int64_t jobs = static_cast<int64_t>(n_groups) * ((n_strips + kBigStrips - 1) / kBigStrips) *
                       ((n_rows + 127) / 128);
  return n_rows >= 256 && 6 * jobs >= sm_count;
}

}  // namespace hadal::cuda
