#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/packed.h"
#include "compute/backends/cuda/wide.h"

// Products of experts that get dozens of rows and more: FP4 weights, a list of tiles of up to
// kLongTileRows rows by class (wide_jobs.h). The same bits as launch_wide.
namespace hadal::cuda {

bool big_list_fits(const Packed& weight, const Gpu& gpu);
// `class_ends`: of the tiles (dispatch.h). `x_rows`: of x, a multiple of 8. REQUIRES:
// big_list_fits; bf16 results, rows of y at multiples of 16 bytes.
void launch_big_list(const WideProduct& product, const int32_t* class_ends, int64_t x_rows,
                     const Gpu& gpu, cudaStream_t stream);

}  // namespace hadal::cuda
