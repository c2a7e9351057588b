#pragma once

#include <cstddef>

namespace hadal::cuda {

// What launch functions may know of the GPU they run on, known when the backend is made.
struct Gpu {
  int sm_count = 0;
  int cc_major = 0, cc_minor = 0;  // compute capability, 9.0 for H100 and H200
  size_t smem_optin = 0;           // bytes of shared memory that one block may ask for
  size_t l2_bytes = 0;
  // How work is given to it: kernels of a step may start before the one in front of them has ended
  // (async_copy.cuh). Matrix products always may.
  bool overlap = false;
  // Products of quantised rows may add in E4M3 where they are many (big_list_fp8.h).
  bool fp8_products = false;
};

}  // namespace hadal::cuda
