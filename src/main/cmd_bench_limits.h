#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compute/backends/cpu/linear.h"
#include "compute/backends/cpu/thread_pool.h"

namespace hadal::main {

double bench_seconds();  // monotonic

// Median, and the distance between the first and last tenth over the median.
struct Spread {
  double median = 0;
  double spread = 0;
};
Spread summarise(std::vector<double> values);

// What this machine can do at most, measured by the same threads in the same run.
class BenchLimits {
 public:
  // The buffer is at least four times the last-level cache, so that none of it is a cache hit.
  explicit BenchLimits(cpu::ThreadPool& pool);
  int64_t buffer_bytes() const { return buffer_.size(); }
  // One pass over the buffer, in bytes a second.
  double read_bandwidth();

 private:
  cpu::ThreadPool& pool_;
  cpu::PackedBytes buffer_;
};

// bf16 products out of registers, flop a second, by the best of the level's programs.
double bf16_peak(cpu::ThreadPool& pool, std::span<const cpu::LinearKernels> programs);

std::string cpu_model_name();
int64_t last_cache_bytes();

}  // namespace hadal::main
