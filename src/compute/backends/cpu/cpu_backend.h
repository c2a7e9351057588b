#pragma once

#include <memory>
#include <string>

#include "base/core/result.h"
#include "compute/backends/cpu/cpu_level.h"
#include "compute/ops/backend.h"

namespace hadal::cpu {

struct CpuOptions {
  int n_threads = 0;       // 0: every CPU that the process may use
  std::string level = {};  // "" or "best", or a name of cpu_level.h
  bool pin = true;
};

// Threads, device and op set of the host. The calling thread of an op works too.
core::Result<std::unique_ptr<ops::Backend>> make_cpu_backend(const CpuOptions& options);

}  // namespace hadal::cpu
