#pragma once

#include <functional>

namespace hadal::main {

// Runs `command` and gives its exit code; 1, with a message on stderr, when something that it
// printed did not arrive on standard output. A file at its size limit (RLIMIT_FSIZE) becomes a
// failed write that the command reports, not the end of the process.
int run_with_checked_output(const std::function<int()>& command);

}  // namespace hadal::main
