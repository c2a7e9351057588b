#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compute/backends/cuda/gpu.h"

// How products of up to 8 rows (thin.cuh) share out a GPU. Pure and free of CUDA, so that it is
// tested without a GPU; compiled for the device with --expt-relaxed-constexpr.
namespace hadal::cuda {

// How a launch uses an SM. Codes are bound by the instructions that decode them: three blocks of
// short rings give more warps. Two blocks of deep rings are better where the units would leave the
// last of three turns half empty, or where the bytes are not decoded.
struct ThinPlan {
  bool deep = true;
  int blocks_per_sm = 1;
  size_t shared_bytes = 0;
};
// `short_bytes` and `deep_bytes`: shared memory of a block of either kind (1 KiB more is the
// system's). A plan whose shared_bytes are above gpu.smem_optin cannot be launched.
constexpr ThinPlan plan_thin(int64_t n_units, size_t short_bytes, size_t deep_bytes,
                             const Gpu& gpu) {
  const auto fit = [&](size_t bytes) {
    return static_cast<int64_t>((gpu.smem_optin + 1024) / (bytes + 1024));
  };
  const auto turns = [&](int64_t blocks) {
    const int64_t at_once = blocks * gpu.sm_count;
    return (n_units + at_once - 1) / at_once * blocks;
  };
  // Measured on an H200: long runs of three short blocks take 0.87 of the time of two deep ones.
  const bool three = fit(short_bytes) >= 3 && turns(3) * 87 < turns(2) * 100;
  if (three || deep_bytes > gpu.smem_optin)
    return {false, static_cast<int>(std::clamp<int64_t>(fit(short_bytes), 1, 3)), short_bytes};
  return {true, static_cast<int>(std::clamp<int64_t>(fit(deep_bytes), 1, 2)), deep_bytes};
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
