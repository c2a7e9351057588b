#pragma once

#include "compute/ops/backend.h"

namespace hadal::main {

// Times the ops of a backend at the sizes of the released model, each beside the least time that
// its bytes or products need at the peaks that the same run measures. One line an op and row count;
// with `json` one object a line. Returns the exit code.
int bench_device_ops(ops::Backend& backend, bool json);

}  // namespace hadal::main
