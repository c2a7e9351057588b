#include "compute/weights/memory_plan.h"

#include <algorithm>
#include <string>

#include "compute/ops/kv_layout.h"
#include "compute/weights/layout.h"

namespace hadal::weights {
namespace {

std::string_view group_of(std::string_view name) {
  const auto has = [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  if (name.starts_with("mtp.")) return "draft";
  if (name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_"))
    return "vision";
  if (has(".engram.embed.")) return "engram tables";
  if (has(".engram.")) return "engram projections";
  if (has(".ffn.experts.")) return "experts";
  if (has(".ffn.shared_experts.")) return "shared experts";
  if (has(".ffn.gate.")) return "routers";
  if (has(".attn.indexer.") || has(".attn.compressor.")) return "compressors and indexers";
  if (has(".attn.")) return "attention";
  if (has(".hc_")) return "hyper-connections";
  if (name == "embed.weight" || name == "head.weight") return "embedding and head";
  return "norms";
}

}  // namespace

MemoryPlan make_memory_plan(const ModelConfig& config) {
  MemoryPlan plan;
  for_each_tensor(config, [&plan](const ExpectedTensor& tensor) {
    const std::string_view name = group_of(tensor.name);
    auto at = std::find_if(plan.groups.begin(), plan.groups.end(),
                           [name](const WeightGroup& g) { return g.name == name; });
    if (at == plan.groups.end()) at = plan.groups.insert(at, WeightGroup{.name = name});
    ++at->n_tensors;
    at->n_bytes += tensor.n_bytes();
    if (name == "engram tables") plan.engram_table_bytes += tensor.n_bytes();
  });
  std::stable_sort(
      plan.groups.begin(), plan.groups.end(),
      [](const WeightGroup& a, const WeightGroup& b) { return a.n_bytes > b.n_bytes; });
  const EngramConfig& engram = config.engram;
  plan.engram_bytes_per_token = static_cast<int64_t>(engram.layers.size()) * engram.n_columns() *
                                (engram.d_head + engram.d_head / 32);
  plan.entry_bytes = ops::entry_record_bytes(config.d_head);
  plan.key_bytes = ops::key_record_bytes(config.d_index);
  for (const int32_t layer : config.kv_sources)
    plan.records_per_token += 1.0 / config.roles[static_cast<size_t>(layer)].ratio;
  plan.kv_bytes_per_token =
      static_cast<double>(plan.entry_bytes + plan.key_bytes) * plan.records_per_token;
  plan.window_record_bytes = ops::window_record_bytes(config.d_head);
  const int64_t ring = int64_t{config.window} * plan.window_record_bytes;
  plan.window_bytes_per_sequence = config.n_layers * ring;
  plan.draft_window_bytes_per_sequence = config.draft.n_layers * ring;
  return plan;
}

}  // namespace hadal::weights
