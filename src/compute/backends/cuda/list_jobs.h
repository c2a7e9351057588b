#pragma once

#include <cstdint>

#include "compute/backends/cuda/wide_jobs.h"

// How the products of the experts (lists.h) are shared out. Pure and free of CUDA, so that it is
// tested without a GPU; compiled for the device with --expt-relaxed-constexpr.
namespace hadal::cuda {

inline constexpr int kListStrips = 16;  // of a job, at most
// What a job of the shared expert takes, in routed strips: a strip of FP8 has the bytes of two of
// FP4, and products of many rows take longer.
inline constexpr int64_t kSharedJobWeight = 36;

// First routed strip of a block, all tiles' strips one behind the other. Blocks have equal numbers
// of the shared expert's jobs, as far as that goes, and of the routed strips what makes the bytes
// even: a job of the shared expert weighs `job_weight` of them. Where one is more than a block's
// part of all, blocks that have one have nothing else.
constexpr int64_t list_begin(int64_t n_shared_jobs, int64_t job_weight, int64_t n_routed,
                             int64_t block, int64_t n_blocks) {
  const int64_t total = job_weight * n_shared_jobs + n_routed;
  const int64_t most = (n_shared_jobs + n_blocks - 1) / n_blocks;  // of a block
  if (total / n_blocks < job_weight * most) {
    const int64_t without = n_blocks - n_shared_jobs;
    if (without <= 0) return n_routed * block / n_blocks;
    return n_routed * (block - n_shared_jobs * block / n_blocks) / without;
  }
  return total * block / n_blocks - job_weight * (n_shared_jobs * block / n_blocks);
}

// The same where a tile's strips are whole jobs (those of the released experts are): blocks begin
// with one, so that none has parts of jobs at both ends of a tile. A part takes as long as a job.
constexpr int64_t list_job_begin(int32_t of_tile, int64_t begin) {
  if (of_tile % kListStrips != 0) return begin;
  return (begin + kListStrips / 2) / kListStrips * kListStrips;
}

// The jobs of routed strips [at, end), of which a tile has `of_tile`: all of one tile, of up to
// kListStrips strips, as even as can be.
struct ListWalk {
  int32_t of_tile = 1;
  int32_t at = 0, end = 0;
  int32_t tile = 0, first = 0;  // the tile that `at` is of, and its first strip
  int32_t left = 0;             // jobs up to tile_end
  int32_t tile_end = 0;         // or `end` before that

  constexpr ListWalk(int32_t strips_of_tile, int64_t begin, int64_t last)
      : of_tile(strips_of_tile), at(static_cast<int32_t>(begin)), end(static_cast<int32_t>(last)) {}
  constexpr bool done() const { return at >= end; }
  // True if a job of another tile than the one before begins: `tile` is new.
  constexpr bool enter() {
    if (left > 0) return false;
    tile = at / of_tile;
    first = tile * of_tile;
    tile_end = fewer(end, first + of_tile);
    left = (tile_end - at + kListStrips - 1) / kListStrips;
    return true;
  }
  // Strips of the tile that the next job takes, behind enter().
  constexpr int32_t n_strips() const { return (tile_end - at + left - 1) / left; }
  constexpr int32_t first_strip() const { return at - first; }
  constexpr void next() {
    at += n_strips();
    --left;
  }
};

}  // namespace hadal::cuda
