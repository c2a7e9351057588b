#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/big_jobs.h"
#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/wide.h"

// Products of hundreds of rows and more, without a list of tiles. The same bits as launch_wide.
namespace hadal::cuda {

// True if launch_big takes the product: FP8 of up to 8192 inputs or bf16, enough rows, Hopper.
bool big_fits(const Packed& weight, int64_t n_rows, const Gpu& gpu);
// REQUIRES: big_fits; no tiles. Needs no room for sums of slices.
void launch_big(const WideProduct& product, const Gpu& gpu, cudaStream_t stream);
// The same, cut as `space` says: 64, 128 or 192 rows a tile, 1 or 2 blocks a cluster.
void launch_big(const WideProduct& product, const BigSpace& space, const Gpu& gpu,
                cudaStream_t stream);

}  // namespace hadal::cuda
