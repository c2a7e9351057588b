#pragma once

#include <memory>
#include <string>

#include "base/core/result.h"
#include "compute/ops/backend.h"
#include "main/model_flags.h"

namespace hadal::main {

// The folder of this program's file, where its modules lie. "" if it cannot be found out.
std::string program_dir();

// The backend that `--backend` names:
//   cpu    the host
//   cuda   the GPU; an error says which of module, driver, GPU or its age is missing, and the mend.
//          cuda:serial gives it one kernel at a time, cuda:fp8 takes prefill's products in E4M3
//          (docs/gpu.md)
//   auto   (or "") the GPU if there is one that works, else the host. One line on stderr says so
//   only
//          where a person would expect the GPU: it is there, and this build or its driver is not
//          for it. Options of the host (--cpu-level) choose the host.
core::Result<std::unique_ptr<ops::Backend>> make_backend(const ModelFlags& flags);

}  // namespace hadal::main
