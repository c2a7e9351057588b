#include <cstdint>

#include <immintrin.h>

#include "compute/backends/cpu/linear_job.h"
#include "compute/backends/cpu/linear_shape.h"

namespace hadal::cpu::level_avx512bf16_fma {
namespace {

#include "compute/backends/cpu/linear_bf16dot.inc"
constexpr bool kTileDot = false;

#include "compute/backends/cpu/linear_body.inc"

}  // namespace

void run(const PanelJob& job) {
  run_panels(job);
}

double peak(int64_t turns, float* sink) {
  return run_peak(turns, sink);
}

}  // namespace hadal::cpu::level_avx512bf16_fma
