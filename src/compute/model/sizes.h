#pragma once

#include "compute/model/model.h"
#include "compute/ops/kv_layout.h"
#include "compute/ops/ops.h"
#include "compute/weights/model_config.h"

namespace hadal::model {

// What cache layouts and op scratch need to know of a config.
ops::KvShape kv_shape(const weights::ModelConfig& config, int32_t ring_tokens);
ops::Ops::Limits op_limits(const weights::ModelConfig& config, const StepLimits& limits);

}  // namespace hadal::model
