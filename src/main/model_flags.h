#pragma once

#include <cstdint>
#include <string>

namespace hadal::main {

// The options of every command that runs a model (docs/architecture.md 3.2).
struct ModelFlags {
  std::string model_dir;
  std::string backend;    // "": the best present
  std::string cpu_level;  // "": the best this machine runs
  std::string replay = "exact";
  int threads = 0;             // 0: every CPU of the process
  int32_t prefill_chunk = 0;   // rows of a prompt in one step; 0: the command's choice
  int32_t block_tokens = 128;  // kv.block-tokens
  bool log_loading = false;    // how far loading is goes to the log, not to the terminal
};

}  // namespace hadal::main
