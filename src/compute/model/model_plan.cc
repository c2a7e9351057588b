#include "compute/model/model_plan.h"

#include "compute/model/sizes.h"
#include "compute/model/workspace.h"
#include "compute/weights/layout.h"

namespace hadal::model {

ModelPlan plan_model(const weights::ModelConfig& config, const ModelOptions& options,
                     const ops::Ops& ops, const StepLimits& limits) {
  ModelPlan plan;
  weights::for_each_tensor(config, [&plan](const weights::ExpectedTensor& t) {
    if (t.optional || t.name.find(".engram.embed.") != std::string::npos) return;
    plan.weight_bytes += t.n_bytes();
  });
  const ops::KvLayouts layouts =
      ops::make_kv_layouts(kv_shape(config, options.ring_tokens), options.block_tokens);
  plan.slab_bytes = layouts.kv.slab_bytes;
  plan.slot_bytes = layouts.slot.slot_bytes;
  Activations none;
  plan.workspace = lay_out(config, layouts, limits, ops.workspace_bytes(op_limits(config, limits)),
                           nullptr, none);
  return plan;
}

}  // namespace hadal::model
