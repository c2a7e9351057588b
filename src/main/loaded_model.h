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

// What a command will take of the device beside the weights, at least.
struct DeviceUse {
  model::StepLimits limits;
  uint64_t n_blocks = 0;
  uint64_t n_slots = 0;
  bool logits = true;  // rows of logits too
};

// kOverloaded with the plan if an accelerator has no room for the model and `use`.
core::Status check_fits(const weights::ModelConfig& config, const model::ModelOptions& options,
                        ops::Backend& backend, const DeviceUse& use);
core::Result<ops::Replay> parse_replay(const std::string& name);
// On an accelerator, a model that does not fit with `use` is refused before anything is read:
// kOverloaded with the plan. `backend`: the one to use; null makes the one that the flags name.
core::Result<LoadedModel> load_model(const ModelFlags& flags, const DeviceUse& use = {},
                                     std::unique_ptr<ops::Backend> backend = nullptr);

// Compressed ids of Engram: engram_token_map.json beside the weights if present, else computed from
// tokenizer.json. Empty if the config has no Engram layers.
core::Result<std::vector<int32_t>> load_token_map(const std::string& model_dir,
                                                  const weights::ModelConfig& config);

// A JSON array of integers, as `--tokens FILE` and engram_token_map.json hold.
core::Result<std::vector<int32_t>> read_id_list(const std::string& path);

}  // namespace hadal::main
