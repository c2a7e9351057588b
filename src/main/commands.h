#pragma once

#include <string>
#include <vector>

// One options struct and one function per subcommand; cli.cc fills the struct from flags, cmd_*.cc
// holds the function. A function returns the exit code: 0 done, 1 could not (message printed with
// the mend), 2 wrong usage.
namespace hadal::main {}  // namespace hadal::main
