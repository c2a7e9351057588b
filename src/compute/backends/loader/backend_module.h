#pragma once

#include <memory>
#include <string>

#include "base/core/result.h"
#include "compute/backends/loader/module_entry.h"
#include "compute/ops/backend.h"

namespace hadal::loader {

// A backend whose code lies in a shared object, or the reason why there is none. The object stays
// mapped for the life of the process: vtables and device state point into it.
struct ModuleOutcome {
  std::unique_ptr<ops::Backend> backend;
  Absence absence = Absence::kNoModule;
  std::string message;  // for people, with the mend; empty when there is a backend
};

// Opens lib`hadal_NAME`.so of `folder`. `named` is NAME or NAME:OPTION, where the option is the
// module's to understand. Thread safety: call it before other threads start.
ModuleOutcome open_backend(const std::string& folder, const std::string& named);

}  // namespace hadal::loader
