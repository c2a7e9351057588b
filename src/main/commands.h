#pragma once

#include <string>
#include <vector>

#include "main/model_flags.h"

// One options struct and one function per subcommand; cli.cc fills the struct from flags, cmd_*.cc
// holds the function. A function returns the exit code: 0 done, 1 could not (message printed with
// the mend), 2 wrong usage.
namespace hadal::main {

struct ScoreOptions {
  ModelFlags model;
  std::string tokens;  // JSON array of ids
  std::string logits;  // npy file, "": none
  int32_t top_n = 0;
  bool plan = false;
};
int cmd_score(const ScoreOptions& options);

}  // namespace hadal::main
