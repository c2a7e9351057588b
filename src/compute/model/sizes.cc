#include "compute/model/sizes.h"

#include <algorithm>

namespace hadal::model {

ops::KvShape kv_shape(const weights::ModelConfig& config, int32_t ring_tokens) {
  ops::KvShape shape;
  shape.n_layers = config.n_layers;
  shape.window = config.window;
  shape.ring_tokens = ring_tokens;
  shape.d_head = config.d_head;
  shape.d_index = config.d_index;
  shape.max_ngram = config.engram.layers.empty() ? 0 : config.engram.max_ngram;
  for (const int32_t layer : config.kv_sources) {
    shape.source_layers.push_back(layer);
    shape.source_ratios.push_back(config.roles[static_cast<size_t>(layer)].ratio);
  }
  return shape;
}

ops::Ops::Limits op_limits(const weights::ModelConfig& config, const StepLimits& limits) {
  ops::Ops::Limits out;
  out.max_rows = limits.max_rows;
  out.max_end = limits.max_context;
  out.top_k = config.n_experts_per_token;
  out.widest_k = std::max<int64_t>(
      {int64_t{config.hc_mult} * config.d_hidden, int64_t{config.n_heads} * config.d_head,
       int64_t{config.o_groups} * config.o_lora, int64_t{config.index_heads} * config.d_index,
       int64_t{config.engram.n_columns()} * config.engram.d_head, config.q_lora});
  out.d_inter = config.d_expert;
  out.d_hidden = config.d_hidden;
  out.d_head = config.d_head;
  out.d_index = config.d_index;
  out.n_groups = config.o_groups;
  return out;
}

}  // namespace hadal::model
