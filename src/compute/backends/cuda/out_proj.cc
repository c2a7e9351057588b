#include "compute/backends/cuda/out_proj.h"

#include "compute/backends/cuda/linear.h"

namespace hadal::cuda {

// Both products are linears: wo_a of unquantised rows, wo_b of quantised ones.
uint64_t out_proj_scratch_bytes(const ops::Ops::Limits& limits) {
  return linear_scratch_bytes(limits);
}

void launch_out_proj(const ops::OutArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                     cudaStream_t stream) {
  launch_linear({.weight = args.wo_a, .x = args.o, .plain_input = true, .y = args.u}, scratch, gpu,
                stream);
  launch_linear({.weight = args.wo_b, .x = args.u, .y = args.y}, scratch, gpu, stream);
}

}  // namespace hadal::cuda
