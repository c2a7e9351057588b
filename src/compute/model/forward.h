#pragma once

#include <cstdint>
#include <vector>

#include "compute/device/device.h"
#include "compute/model/layer_weights.h"
#include "compute/model/workspace.h"
#include "compute/ops/backend.h"
#include "compute/weights/model_config.h"

namespace hadal::model {

// Rotary frequencies, [d_rope / 2] f32 (docs/model.md 3.1).
struct RopeTables {
  std::vector<float> main;  // layers of ratio 0
  std::vector<float> comp;  // layers that read a global cache
};
RopeTables make_rope_tables(const weights::ModelConfig& config);

// One step over the op set: borrows everything, holds nothing beyond the call.
class Forward {
 public:
  Forward(const weights::ModelConfig& config, const ModelWeights& weights,
          const ops::KvLayouts& layouts, const RopeTables& rope, ops::Backend& backend,
          const ops::StepBatch& batch, const ops::KvView& kv, Workspace& workspace,
          device::Stream& stream)
      : config_(config),
        weights_(weights),
        layouts_(layouts),
        rope_(rope),
        device_(backend.device()),
        ops_(backend.ops()),
        batch_(batch),
        kv_(kv),
        workspace_(workspace),
        act_(workspace.act),
        limits_(workspace.limits),
        stream_(stream) {}

  void run();

 private:
  void upload();
  DecodeGraph* graph_of_step();  // null: no place for another
  void ops_of_step();            // everything behind the upload
  void angles();
  void layer(int32_t l);
  void engram(int32_t l, int32_t n);
  // read(first, n) for the rows [0, n) of a mapped table.
  template <class F>
  void by_mapped_rows(int32_t n, const F& read);
  void attention_inputs(int32_t l, int32_t n_latent);
  void attention(int32_t l, int32_t n);
  void moe(int32_t l, int32_t n);
  ops::BoundaryArgs boundary() const;
  const float* angles_of(int32_t l) const;
  int32_t source_of(int32_t l) const;  // index into layouts_.kv.sources, -1: none

  const weights::ModelConfig& config_;
  const ModelWeights& weights_;
  const ops::KvLayouts& layouts_;
  const RopeTables& rope_;
  device::Device& device_;
  ops::Ops& ops_;
  const ops::StepBatch& batch_;
  const ops::KvView& kv_;
  Workspace& workspace_;
  Activations& act_;
  const StepLimits& limits_;
  device::Stream& stream_;
};

}  // namespace hadal::model
