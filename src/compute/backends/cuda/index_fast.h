#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/index_job.cuh"

namespace hadal::cuda {

// Scores of released sizes (32 heads of 128) by the integer matrix units; the bits are the plain
// kernel's. Writes ranks and tops of `rows` rows from job.first_row.
bool index_mma_takes(const IndexJob& job);
void launch_score_mma(const IndexJob& job, int rows, const Gpu& gpu, cudaStream_t stream);

// Lists and pools of `rows` rows from their ranks and tops: lists of at most 1,024 and pools of
// blocks of eight out of at most 131,072 entries.
bool index_pick_takes(const IndexJob& job);
void launch_pick(const IndexJob& job, int rows, cudaStream_t stream);

// The same from the ranks alone, of any shape.
void launch_select(const IndexJob& job, int rows, cudaStream_t stream);

}  // namespace hadal::cuda
