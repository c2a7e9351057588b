#include "engine/step/model_runner.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/weights/model_config.h"

namespace hadal::step {

model::StepLimits ModelRunner::step_limits(const ModelRunnerConfig& config) {
  return {.max_rows = static_cast<int32_t>(config.max_rows),
          .max_seqs = static_cast<int32_t>(config.n_slots),
          .max_logits = static_cast<int32_t>(config.n_slots),
          .max_context = static_cast<int32_t>(config.max_context)};
}

namespace {

uint32_t n_vocab(const model::Model& model) {
  return static_cast<uint32_t>(model.config().vocab);
}

}  // namespace

RunnerPlan ModelRunner::plan(const model::Model& model, const ModelRunnerConfig& config) {
  const auto slot_bytes = static_cast<uint64_t>(model.slot_layout().slot_bytes);
  return {.blocks_bytes = static_cast<uint64_t>(model.kv_layout().slab_bytes) * config.n_blocks,
          .slots_bytes = slot_bytes * config.n_slots,
          .snapshots_bytes = slot_bytes * config.n_snapshots,
          .workspace_bytes = model.plan_workspace(step_limits(config)).total(),
          .logits_bytes = model::LogitRows::bytes(model, static_cast<int32_t>(config.n_slots))};
}

ModelRunner::ModelRunner(const model::Model& model, const ModelRunnerConfig& config)
    : model_(model),
      replay_(config.replay),
      sampling_(n_vocab(model)),
      seen_(config.n_slots),
      limits_(n_vocab(model), config.n_slots, config.tokenizer) {
  const ops::BatchShape shape = model.batch_shape();
  traits_.n_slots = config.n_slots;
  traits_.n_snapshots = config.n_snapshots;
  traits_.max_context = config.max_context;
  traits_.n_vocab = n_vocab(model);
  traits_.max_rows = config.max_rows;
  traits_.windows = {.n_layers = static_cast<uint32_t>(shape.n_layers),
                     .window = static_cast<uint32_t>(shape.window),
                     .split = static_cast<uint32_t>(shape.split),
                     .bounded = config.replay == ops::Replay::kBounded};
  traits_.fingerprint = config.fingerprint;
}

core::Result<std::unique_ptr<ModelRunner>> ModelRunner::make(
    const model::Model& model, device::Device& device, const ModelRunnerConfig& config,
    std::unique_ptr<ops::Sampler> sampler) {
  std::unique_ptr<ModelRunner> made(new ModelRunner(model, config));
  const core::Status allocated = made->allocate(device, config, std::move(sampler));
  if (allocated) return made;
  const RunnerPlan needed = plan(model, config);
  return core::Error{
      allocated.error().code,
      fmt::format("{}\nplanned: {} blocks {:.1f} MB, {} slots {:.1f} MB, {} snapshots {:.1f} MB, "
                  "activations {:.1f} MB, logits {:.1f} MB; "
                  "lower --kv.device-blocks, --sched.max-running or --sched.step-tokens",
                  allocated.error().message, config.n_blocks,
                  static_cast<double>(needed.blocks_bytes) / 1e6, config.n_slots,
                  static_cast<double>(needed.slots_bytes) / 1e6, config.n_snapshots,
                  static_cast<double>(needed.snapshots_bytes) / 1e6,
                  static_cast<double>(needed.workspace_bytes) / 1e6,
                  static_cast<double>(needed.logits_bytes) / 1e6),
      allocated.error().param};
}

core::Status ModelRunner::allocate(device::Device& device, const ModelRunnerConfig& config,
                                   std::unique_ptr<ops::Sampler> sampler) {
  const RunnerPlan needed = plan(model_, config);
  HADAL_TRY(slabs_, device.allocate(needed.blocks_bytes, device::Memory::kDevice));
  HADAL_TRY(slots_, device.allocate(needed.slots_bytes, device::Memory::kDevice));
  HADAL_TRY(snapshots_, device.allocate(needed.snapshots_bytes, device::Memory::kHost));
  if (sampler != nullptr) {
    HADAL_TRY(device_sampling_,
              DeviceSampling::make(model_, device, std::move(sampler), config.n_slots));
  } else {
    HADAL_TRY(logits_,
              model::LogitRows::make(model_, device, static_cast<int32_t>(config.n_slots)));
  }
  HADAL_TRY(stream_, device.make_stream());
  // The host's stream runs each op in its call (docs/adr/0007-cpu-stream.md).
  traits_.runs_in_launch = device.reads_host_memory();
  HADAL_TRY(workspace_, model_.make_workspace(step_limits(config)));
  kv_ = {.slabs = slabs_.data(),
         .slots = slots_.data(),
         .n_blocks = config.n_blocks,
         .n_slots = config.n_slots};
  return {};
}

core::Status ModelRunner::accept(const types::Request& request) const {
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] < 0 || static_cast<uint32_t>(request.prompt[i]) >= traits_.n_vocab) {
      return core::Error{
          core::Code::kInvalidRequest,
          fmt::format("prompt token {} is {}, but the vocabulary has the ids 0 to {}", i,
                      request.prompt[i], traits_.n_vocab - 1),
          "prompt"};
    }
  }
  if (request.script) {
    return core::Error{
        core::Code::kInvalidRequest,
        "a script is played by the script backend only; start the server with --backend script",
        "hadal.script"};
  }
  return limits_.accept(request);
}

void ModelRunner::begin(const SlotStart& start) {
  forget(start.slot);
  switch (start.kind) {
    case Begin::kEmpty:
      model_.reset_slot(kv_, start.slot, *stream_);
      break;
    case Begin::kSeed:
      seed(start);
      break;
    case Begin::kSnapshot: {
      const auto bytes = static_cast<size_t>(model_.slot_layout().slot_bytes);
      model_.load_slot(kv_, start.slot, snapshots_.data() + bytes * start.snapshot, *stream_);
      break;
    }
  }
}

// The n-gram history holds a few tokens, those of pictures as pictures.
void ModelRunner::seed(const SlotStart& start) {
  const size_t n_all = start.tokens_before.size();
  const size_t n = std::min(n_all, static_cast<size_t>(model_.slot_layout().n_history));
  const std::vector<bool>& image_rows = start.request->image_rows;
  seed_images_.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    const size_t at = n_all - n + i;
    seed_images_[i] = at < image_rows.size() && image_rows[at] ? 1 : 0;
  }
  model_.seed_slot(kv_, start.slot, static_cast<int32_t>(start.position),
                   start.tokens_before.last(n), seed_images_, *stream_);
}

void ModelRunner::end(uint32_t slot) {
  forget(slot);
}

void ModelRunner::forget(uint32_t slot) {
  if (device_sampling_) device_sampling_->forget(slot, *stream_);
  limits_.forget(slot);
  SlotSeen& seen = seen_[slot];
  if (seen.tokens) seen.tokens->clear();
  seen.n_counted = 0;
}

void ModelRunner::save(uint32_t slot, uint32_t snapshot) {
  const auto bytes = static_cast<size_t>(model_.slot_layout().slot_bytes);
  model_.save_slot(kv_, slot, snapshots_.data() + bytes * snapshot, *stream_);
}

void ModelRunner::launch(std::span<const RunChunk> chunks) {
  flight_ = 1 - flight_;
  Flight& flight = flights_[flight_];
  running_ = chunks;
  flight.chunks.clear();
  flight.n_accepted.clear();
  flight.images.resize(std::max(flight.images.size(), chunks.size()));
  for (size_t i = 0; i < chunks.size(); ++i) {
    const RunChunk& chunk = chunks[i];
    std::vector<uint8_t>& image = flight.images[i];
    image.clear();
    if (!chunk.request->image_rows.empty()) {
      for (size_t p = chunk.position; p < chunk.position + chunk.tokens.size(); ++p) {
        image.push_back(p < chunk.request->image_rows.size() && chunk.request->image_rows[p] ? 1
                                                                                             : 0);
      }
    }
    flight.chunks.push_back({.slot = chunk.slot,
                             .position = static_cast<int32_t>(chunk.position),
                             .ids = chunk.tokens,
                             .image = image,
                             .blocks = chunk.blocks,
                             .n_logits = chunk.samples ? 1 : 0,
                             .depth_from = static_cast<int32_t>(chunk.depth_from),
                             .replay = replay_,
                             .window_floor = static_cast<int32_t>(chunk.window_floor),
                             .write_from = static_cast<int32_t>(chunk.write_from)});
    flight.n_accepted.push_back(static_cast<int32_t>(chunk.tokens.size()));
  }
  ops::build_step_batch(model_.batch_shape(), flight.chunks, flight.batch);
  model_.forward(flight.batch, kv_, *workspace_, *stream_);
  const auto n_logits = static_cast<int32_t>(flight.batch.logit_rows.size());
  if (device_sampling_) return device_sampling_->launch(chunks, limits_, *workspace_, *stream_);
  if (n_logits > 0) logits_.fetch(model_, *workspace_, 0, n_logits, *stream_);
}

core::Status ModelRunner::collect(std::vector<RunResult>& results) {
  HADAL_TRY_VOID(stream_->synchronize());
  results.resize(running_.size());
  int32_t row = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    RunResult& result = results[i];
    result.tokens.clear();
    result.ended = false;
    result.error.clear();
    if (!running_[i].samples) continue;
    if (device_sampling_) {
      device_sampling_->take(row++, result);
    } else {
      sample(running_[i], logits_.row(row++), result);
    }
  }
  Flight& flight = flights_[flight_];
  model_.commit(flight.batch, flight.n_accepted, kv_, *workspace_, *stream_);
  return {};
}

const sampling::SeenTokens* ModelRunner::seen(const RunChunk& chunk) {
  if (!sampling::has_penalties(chunk.request->sampling)) return nullptr;
  SlotSeen& seen = seen_[chunk.slot];
  if (!seen.tokens) seen.tokens.emplace(traits_.n_vocab);
  for (; seen.n_counted < chunk.history.size(); ++seen.n_counted) {
    const types::TokenId token = chunk.history[seen.n_counted];
    if (seen.n_counted < chunk.n_prompt) {
      seen.tokens->add_prompt(token);
    } else {
      seen.tokens->add_output(token);
    }
  }
  return &*seen.tokens;
}

void ModelRunner::sample(const RunChunk& chunk, std::span<float> logits, RunResult& result) {
  const types::Request& request = *chunk.request;
  sampling::RowInput row{.logits = logits,
                         .params = &request.sampling,
                         .seen = seen(chunk),
                         .allowed = {},
                         .banned = {},
                         .position = chunk.history.size()};
  if (const auto limits = limits_.limits(chunk)) {
    row.allowed = limits->allowed;
    row.banned = limits->banned;
  } else {
    result.error = limits.error().message;
    return;
  }
  auto event = sampling::sample_row(row, sampling_);
  if (event) {
    result.tokens.push_back(*std::move(event));
  } else {
    result.error = event.error().message;
  }
}

}  // namespace hadal::step
