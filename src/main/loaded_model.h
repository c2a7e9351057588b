#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "compute/model/model.h"
#include "compute/ops/backend.h"
#include "compute/weights/checkpoint.h"
#include "compute/weights/model_config.h"
#include "main/model_flags.h"

namespace hadal::main {

// A model with everything it borrows, in order of destruction.
struct LoadedModel {
  weights::ModelConfig config;
  std::unique_ptr<weights::Checkpoint> checkpoint;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<model::Model> model;
};

core::Result<ops::Replay> parse_replay(const std::string& name);
core::Result<LoadedModel> load_model(const ModelFlags& flags);

// Compressed ids of Engram: engram_token_map.json beside the weights if present, else computed from
// tokenizer.json. Empty if the config has no Engram layers.
core::Result<std::vector<int32_t>> load_token_map(const std::string& model_dir,
                                                  const weights::ModelConfig& config);

// A JSON array of integers, as `--tokens FILE` and engram_token_map.json hold.
core::Result<std::vector<int32_t>> read_id_list(const std::string& path);

}  // namespace hadal::main
