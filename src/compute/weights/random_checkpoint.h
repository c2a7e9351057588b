#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/core/result.h"
#include "compute/weights/model_config.h"

namespace hadal::weights {

struct RandomCheckpointOptions {
  std::string config_path;
  // Copied as tokenizer.json. "": none, and an engram_token_map.json that folds ids modulo the
  // folded size, so that the folder runs on token ids.
  std::string tokenizer_path;
  std::string folder;  // must not exist, or be empty
  uint64_t seed = 0;
  uint64_t shard_bytes = 0;  // a shard is closed before it grows beyond this; 0: one file
  std::function<void(uint64_t done, uint64_t total)>
      on_progress;  // after each few MB; may be empty
};

struct RandomCheckpointTotals {
  uint64_t n_tensors = 0, n_bytes = 0, n_shards = 0;
};

// Writes a checkpoint of random weights in the released format. Memory does not grow with it. All
// is written beside the folder under a temporary name, which becomes `folder` at the very end: a
// folder of that name is complete. On failure the temporary folder is removed.
core::Result<RandomCheckpointTotals> write_random_checkpoint(
    const RandomCheckpointOptions& options);

}  // namespace hadal::weights
