#pragma once

#include <cstddef>

namespace hadal::cuda {

// What launch functions may know of the GPU they run on, read once when the backend is made.
struct Gpu {
  int sm_count = 0;
  int cc_major = 0, cc_minor = 0;  // compute capability, 9.0 for H100 and H200
  size_t smem_optin = 0;           // bytes of shared memory that one block may ask for
  size_t l2_bytes = 0;
};

}  // namespace hadal::cuda
