#pragma once

#include <cstdint>

#include "compute/model/model.h"
#include "compute/ops/backend.h"

namespace hadal::model {

// What a model takes of a device, from its config alone: for refusals before anything is loaded.
struct ModelPlan {
  // As stored; packed weights are larger by less than a hundredth. Without Engram tables, which
  // stay in the checkpoint, and without draft and vision layers, which the text model does not
  // load.
  uint64_t weight_bytes = 0;
  int64_t slab_bytes = 0;
  int64_t slot_bytes = 0;
  WorkspacePlan workspace;
};

// REQUIRES: options.block_tokens is a multiple of every ratio of the config.
ModelPlan plan_model(const weights::ModelConfig& config, const ModelOptions& options,
                     const ops::Ops& ops, const StepLimits& limits);

}  // namespace hadal::model
