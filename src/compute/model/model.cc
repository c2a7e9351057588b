#include "compute/model/model.h"

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/model/forward.h"
#include "compute/model/layer_weights.h"
#include "compute/model/sizes.h"
#include "compute/model/workspace.h"
#include "compute/weights/checkpoint.h"
#include "compute/weights/model_config.h"

namespace hadal::model {
namespace {

core::Status check_options(const weights::ModelConfig& config, const ModelOptions& options) {
  if (!config.engram.layers.empty() &&
      static_cast<int64_t>(options.token_map.size()) < config.vocab) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("the Engram token map has {} ids, the vocabulary {}; the "
                                   "tokenizer does not belong to this model",
                                   options.token_map.size(), config.vocab)};
  }
  for (const int32_t layer : config.kv_sources) {
    const int32_t ratio = config.roles[static_cast<size_t>(layer)].ratio;
    if (options.block_tokens <= 0 || options.block_tokens % ratio != 0) {
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("kv.block-tokens is {}, it must be a positive multiple of "
                                     "{}, the compression ratio of layer {}",
                                     options.block_tokens, ratio, layer),
                         "kv.block-tokens"};
    }
  }
  return {};
}

}  // namespace

struct Model::State {
  weights::ModelConfig config;
  ModelOptions options;
  ops::Backend* backend = nullptr;
  ops::KvLayouts layouts;
  RopeTables rope;
  ModelWeights weights;
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;

core::Result<std::unique_ptr<Model>> Model::load(const weights::Checkpoint& checkpoint,
                                                 const weights::ModelConfig& config,
                                                 ops::Backend& backend, ModelOptions options) {
  HADAL_TRY_VOID(check_options(config, options));
  auto state = std::make_unique<State>();
  state->config = config;
  state->options = std::move(options);
  state->backend = &backend;
  state->layouts = ops::make_kv_layouts(kv_shape(config, state->options.ring_tokens),
                                        state->options.block_tokens);
  state->rope = make_rope_tables(config);
  HADAL_TRY(state->weights, load_weights(checkpoint, config, state->options, backend));
  state->options.on_progress = {};  // what it refers to may go
  return std::unique_ptr<Model>(new Model(std::move(state)));
}

const weights::ModelConfig& Model::config() const {
  return state_->config;
}
const ops::KvLayout& Model::kv_layout() const {
  return state_->layouts.kv;
}
const ops::SlotLayout& Model::slot_layout() const {
  return state_->layouts.slot;
}
uint64_t Model::weight_bytes() const {
  return state_->weights.bytes;
}

ops::BatchShape Model::batch_shape() const {
  const weights::ModelConfig& c = state_->config;
  return {.n_layers = c.n_layers, .window = c.window, .split = c.split_layer};
}

WorkspacePlan Model::plan_workspace(const StepLimits& limits) const {
  Activations none;
  const uint64_t scratch =
      state_->backend->ops().workspace_bytes(op_limits(state_->config, limits));
  return lay_out(state_->config, state_->layouts, limits, scratch, nullptr, none);
}

core::Result<WorkspacePtr> Model::make_workspace(const StepLimits& limits) const {
  const WorkspacePlan plan = plan_workspace(limits);
  device::Device& device = state_->backend->device();
  WorkspacePtr out(new Workspace());
  out->limits = limits;
  HADAL_TRY(out->memory, device.allocate(plan.total(), device::Memory::kDevice));
  const uint64_t scratch =
      state_->backend->ops().workspace_bytes(op_limits(state_->config, limits));
  lay_out(state_->config, state_->layouts, limits, scratch, out->memory.data(), out->act);
  for (StepStaging& staging : out->staging) {
    HADAL_TRY(staging.memory, device.allocate(out->act.step_bytes, device::Memory::kHost));
    HADAL_TRY(staging.sent, device.make_event());
  }
  HADAL_TRY(std::unique_ptr<device::Stream> stream, device.make_stream());
  std::vector<const float*> groups;
  for (const device::Matrix<float>& g : out->act.groups) groups.push_back(g.data);
  device.copy(*stream, out->act.group_rows, groups.data(), groups.size() * sizeof(float*));
  HADAL_TRY_VOID(stream->synchronize());
  return out;
}

void Model::reset_slot(const ops::KvView& kv, uint32_t slot, device::Stream& stream) const {
  seed_slot(kv, slot, 0, {}, {}, stream);
}

void Model::seed_slot(const ops::KvView& kv, uint32_t slot, int32_t position,
                      std::span<const int32_t> ids_before, std::span<const uint8_t> image_before,
                      device::Stream& stream) const {
  const ops::SlotLayout& layout = state_->layouts.slot;
  int32_t header[1 + 16];
  HADAL_CHECK(layout.n_history <= 16 && slot < kv.n_slots, "slot out of range");
  header[0] = position;
  const auto n = static_cast<int32_t>(ids_before.size());
  for (int32_t i = 0; i < layout.n_history; ++i) {
    const int32_t at = n - layout.n_history + i;
    const bool known = at >= 0 && position - layout.n_history + i >= 0 &&
                       (image_before.empty() || image_before[static_cast<size_t>(at)] == 0);
    header[1 + i] =
        known ? state_->options.token_map[static_cast<size_t>(ids_before[static_cast<size_t>(at)])]
              : -1;
  }
  device::Device& device = state_->backend->device();
  device.copy(stream, kv.slots + slot * layout.slot_bytes, header,
              static_cast<uint64_t>(1 + layout.n_history) * sizeof(int32_t));
}

void Model::save_slot(const ops::KvView& kv, uint32_t slot, std::byte* to,
                      device::Stream& stream) const {
  const auto bytes = static_cast<uint64_t>(state_->layouts.slot.slot_bytes);
  state_->backend->device().copy(stream, to, kv.slots + slot * bytes, bytes);
}

void Model::load_slot(const ops::KvView& kv, uint32_t slot, const std::byte* from,
                      device::Stream& stream) const {
  const auto bytes = static_cast<uint64_t>(state_->layouts.slot.slot_bytes);
  state_->backend->device().copy(stream, kv.slots + slot * bytes, from, bytes);
}

void Model::forward(const ops::StepBatch& batch, const ops::KvView& kv, Workspace& workspace,
                    device::Stream& stream) const {
  HADAL_CHECK(static_cast<int32_t>(batch.n_full.size()) == state_->config.n_layers,
              "a batch of another model");
  workspace.kv = kv;
  Forward(state_->config, state_->weights, state_->layouts, state_->rope, *state_->backend, batch,
          workspace.kv, workspace, stream)
      .run();
}

void Model::logits(Workspace& workspace, int32_t first, int32_t n, device::Matrix<float> out,
                   device::Stream& stream) const {
  const device::Matrix<uint16_t>& x = workspace.act.last;
  HADAL_CHECK(first >= 0 && first + n <= x.n_rows && out.n_rows == n, "logit rows");
  state_->backend->ops().linear(
      {.weight = state_->weights.head.get(),
       .x = device::Matrix<const uint16_t>(x.row(first), n, x.n_cols, x.stride),
       .y_f32 = out},
      workspace.act.scratch, stream);
}

void Model::commit(const ops::StepBatch& batch, std::span<const int32_t> n_accepted,
                   const ops::KvView& kv, Workspace& workspace, device::Stream& stream) const {
  Activations& act = workspace.act;
  HADAL_CHECK(n_accepted.size() == batch.seqs.size(), "one accepted count for each sequence");
  for (size_t s = 0; s < n_accepted.size(); ++s) {
    HADAL_CHECK(n_accepted[s] >= 0 && n_accepted[s] <= batch.seqs[s].n_rows,
                "more rows accepted than run");
  }
  state_->backend->device().copy(stream, act.n_accepted, n_accepted.data(),
                                 n_accepted.size_bytes());
  workspace.kv = kv;
  state_->backend->ops().commit({.rows = &act.rows,
                                 .n_accepted = act.n_accepted,
                                 .kv = &workspace.kv,
                                 .layout = &state_->layouts.kv,
                                 .slot = &state_->layouts.slot,
                                 .n_latent = act.n_latent,
                                 .latents = act.latents,
                                 .row_capacity = workspace.limits.max_rows,
                                 .groups = act.group_rows,
                                 .d_head = state_->config.d_head,
                                 .token_map = state_->weights.token_map},
                                stream);
}

}  // namespace hadal::model
