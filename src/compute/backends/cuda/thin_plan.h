#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compute/backends/cuda/gpu.h"

// How products of up to 8 rows (thin.cuh) share out a GPU. Pure and free of CUDA, so that it is
// tested without a GPU; compiled for the device with --expt-relaxed-constexpr.
namespace hadal::cuda {

inline constexpr int kThinRows = 8;  // of a launch, at most
inline constexpr int kMaxTeams = 2;  // of a block

// What a kernel keeps in shared memory, in bytes, and what it wants.
struct ThinNeeds {
  size_t block = 0;     // x and lists
  size_t team = 0;      // sums of a team
  size_t stage = 0;     // one piece for each warp of a team, with its barrier
  int least_teams = 1;  // teams without a unit help to read and quantise x
  int max_stages = 2;
  int pair_stages = 0;  // stages of two blocks on an SM; 0: there must not be two
};
constexpr size_t thin_bytes(const ThinNeeds& needs, int teams, int stages) {
  return needs.block +
         static_cast<size_t>(teams) * (needs.team + static_cast<size_t>(stages) * needs.stage);
}

struct ThinPlan {
  int blocks = 1;           // of the launch
  int teams = 1;            // of a block
  int stages = 2;           // of a ring
  size_t shared_bytes = 0;  // 0: a block does not fit
};
// Two blocks of one team on an SM, where that leaves few of them idle in the last turn: each ends
// and makes room for the next kernel by itself. Otherwise one block of two teams, which shares x.
constexpr ThinPlan plan_thin(int64_t n_units, const ThinNeeds& needs, const Gpu& gpu) {
  const int64_t sms = gpu.sm_count, at_once = 2 * sms;
  const size_t pair_bytes = thin_bytes(needs, 1, needs.pair_stages);
  const int64_t turns = (n_units + at_once - 1) / at_once;
  if (needs.pair_stages > 0 && n_units > sms && turns * at_once * 10 <= n_units * 11 &&
      2 * (pair_bytes + 1024) <= gpu.smem_optin + 1024)
    return {static_cast<int>(at_once), 1, needs.pair_stages, pair_bytes};
  int teams = n_units > sms ? kMaxTeams : needs.least_teams;
  while (teams > 1 && thin_bytes(needs, teams, 2) > gpu.smem_optin) --teams;
  int stages = needs.max_stages;
  while (stages > 1 && thin_bytes(needs, teams, stages) > gpu.smem_optin) --stages;
  const size_t bytes = thin_bytes(needs, teams, stages);
  return {static_cast<int>(std::clamp<int64_t>(n_units, 1, sms)), teams, stages,
          bytes <= gpu.smem_optin ? bytes : 0};
}

// First unit of a block of a product: blocks have equal parts of the units.
constexpr int unit_begin(int64_t n_units, int64_t block, int64_t n_blocks) {
  return static_cast<int>(n_units * block / n_blocks);
}

// First routed unit of a block of the experts. Blocks have equal parts of the shared expert's
// units, and of the routed ones what makes the bytes even (a unit of FP8 has about twice those of
// FP4).
constexpr int routed_begin(int64_t n_shared, int64_t n_routed, int64_t block, int64_t n_blocks) {
  const int64_t total = 2 * n_shared + n_routed;
  if (total / n_blocks < 2 * ((n_shared + n_blocks - 1) / n_blocks))
    return unit_begin(n_routed, block, n_blocks);
  return static_cast<int>(total * block / n_blocks - 2 * (n_shared * block / n_blocks));
}

}  // namespace hadal::cuda
