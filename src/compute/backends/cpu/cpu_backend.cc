#include "compute/backends/cpu/cpu_backend.h"

#include <algorithm>

#include <fmt/format.h>
#include <sched.h>

#include "compute/backends/cpu/cpu_device.h"
#include "compute/backends/cpu/cpu_ops.h"
#include "compute/backends/cpu/thread_pool.h"

namespace hadal::cpu {
namespace {

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

// Four MiB a lane: at released size one row's attention takes 0.5, a tile of widened streams 0.7.
constexpr int64_t kLaneScratch = 4 << 20;

class CpuBackend final : public ops::Backend {
 public:
  CpuBackend(int n_threads, CpuLevel level, bool pin)
      : pool_({.n_threads = n_threads, .scratch_bytes = kLaneScratch, .pin = pin}),
        device_(fmt::format("cpu, {} threads, {}", n_threads, level_name(level))),
        ops_(pool_, level) {}
  std::string_view name() const override { return "cpu"; }
  device::Device& device() override { return device_; }
  ops::Ops& ops() override { return ops_; }

 private:
  ThreadPool pool_;
  CpuDevice device_;
  CpuOps ops_;
};

}  // namespace

core::Result<std::unique_ptr<ops::Backend>> make_cpu_backend(const CpuOptions& options) {
  HADAL_TRY(const CpuLevel level, choose_level(options.level));
  const int n = options.n_threads > 0 ? options.n_threads : usable_cpus();
  return std::unique_ptr<ops::Backend>(std::make_unique<CpuBackend>(n, level, options.pin));
}

}  // namespace hadal::cpu
