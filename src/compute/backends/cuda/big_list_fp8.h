#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/wide_fp8.h"

namespace hadal::cuda {

// The product of FP4 experts of launch_wide_fp8, with its bits, over tiles of up to
// kFp8LongTileRows (fp8_places.h) rows by class (`class_ends`, dispatch.h). REQUIRES: fp8_fits;
// FP4; rows of y at multiples of 16 bytes.
void launch_big_list_fp8(const Fp8Product& product, const int32_t* class_ends, const Gpu& gpu,
                         cudaStream_t stream);

}  // namespace hadal::cuda
