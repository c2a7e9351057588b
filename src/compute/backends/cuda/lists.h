#pragma once

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/backends/cuda/wide.h"

namespace hadal::cuda {

// The shared expert's product (FP8, without a list, `n_rows` rows) and the routed ones' (FP4, with
// one) in one launch. The same bits as launch_wide. The kernel just before on the stream must not
// be the one that made the list: it is read while that kernel ends.
bool lists_fit(const WideProduct& shared, const WideProduct& routed);
void launch_lists(const WideProduct& shared, const WideProduct& routed, const Gpu& gpu,
                  cudaStream_t stream);

}  // namespace hadal::cuda
