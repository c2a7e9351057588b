#pragma once

#include "compute/backends/cuda/attend_job.cuh"
#include "compute/backends/cuda/gpu.h"

namespace hadal::cuda {

// Attention at released sizes (64 heads of 512, windows of 64 or 128 places, blocks of a power of
// two entries) on Hopper's matrix units. `most_places` bounds window + listed entries of a row.
bool attend_hopper_takes(const AttendJob& job, int most_places, const Gpu& gpu);
void launch_attend_hopper(const AttendJob& job, const Gpu& gpu, cudaStream_t stream);

// The same bits for few rows of what attend_hopper_takes, sooner: eight blocks a row.
bool attend_cluster_takes(const AttendJob& job, int most_places, const Gpu& gpu);
void launch_attend_cluster(const AttendJob& job, cudaStream_t stream);

}  // namespace hadal::cuda
