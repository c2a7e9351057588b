#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"

namespace hadal::cuda {

// Microseconds of one launch: the median over graph replays of `launches` calls.
double time_us(int launches, const std::function<void(int, cudaStream_t)>& launch);
// A line: time, and its share of the limit by bytes (4.2 TB/s) and by products (762 TFLOP/s).
void report(const std::string& what, int64_t rows, double us, double bytes, double flops);

// Prints the times of the released products and expert layers, for row counts up to `most`.
void time_all(const Gpu& gpu, int64_t most);
// Few launches of the kernels that matter, for a profiler.
void profile(const Gpu& gpu);

}  // namespace hadal::cuda
