#pragma once

#include "compute/backends/cuda/gpu.h"
#include "compute/device/device.h"
#include "compute/ops/backend.h"

namespace hadal::cuda {

// ops::Backend::measure_peaks. Takes 4 GiB of device memory for the time.
core::Result<ops::Peaks> measure_peaks(const Gpu& gpu, device::Device& device);

}  // namespace hadal::cuda
