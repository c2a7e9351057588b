#pragma once

namespace hadal::main {

// Parses the command line and runs the subcommand. Exit code: 0 done, 1 could not, 2 wrong usage.
int run_cli(int argc, char** argv);

}  // namespace hadal::main
