#include "main/engine_stack.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/log.h"
#include "engine/step/model_runner.h"
#include "engine/step/script_runner.h"
#include "main/backend_choice.h"

namespace hadal::main {
namespace {

// Bookkeeping only: a script needs no bytes behind its blocks.
constexpr uint32_t kScriptBlocks = 1u << 17;
constexpr uint32_t kScriptRunning = 16384;
constexpr uint32_t kScriptStepTokens = 65536;

// On the host, and on an accelerator, which needs more rows in a step to be busy.
constexpr uint32_t kModelRunning = 16, kAcceleratorRunning = 64;
constexpr uint32_t kModelStepTokens = 512, kAcceleratorStepTokens = 2048;
// Asked for by name only: activations of a step grow with the context.
constexpr int64_t kDefaultContext = 32768;

// What a person should know of a pool that holds less than one whole context, or "".
std::string room_warning(const types::EngineLimits& limits, uint32_t n_blocks,
                         uint32_t block_tokens, std::string_view memory) {
  if (limits.max_request_tokens >= limits.max_context) return {};
  const uint32_t needed = (limits.max_context + block_tokens - 1) / block_tokens;
  return fmt::format(
      "one request may have {} tokens, prompt and answer together, of a context of {}: the pool "
      "has {} blocks of {} tokens, a whole context takes {}; raise --kv.device-blocks or "
      "--kv.device-bytes{}",
      limits.max_request_tokens, limits.max_context, n_blocks, block_tokens, needed, memory);
}

template <typename T>
T chosen(T asked, T otherwise) {
  return asked != 0 ? asked : otherwise;
}

}  // namespace

std::string default_model_dir() {
  std::error_code ignored;
  std::filesystem::path folder = program_dir();
  for (int level = 0; level < 4 && !folder.empty(); ++level) {
    const std::filesystem::path demo = folder / "models" / "demo";
    if (std::filesystem::exists(demo / "config.json", ignored)) return demo.string();
    folder = folder.parent_path();
  }
  return {};
}

core::Result<std::unique_ptr<EngineStack>> EngineStack::make(const EngineSettings& asked,
                                                             metrics::Registry& registry) {
  EngineSettings settings = asked;
  if (settings.model.model_dir.empty()) settings.model.model_dir = default_model_dir();
  if (settings.model.model_dir.empty()) {
    return core::Error{
        core::Code::kNotFound,
        "no model: give --model DIR (the bundled models/demo was not found beside this program)",
        "model"};
  }
  std::unique_ptr<EngineStack> made(new EngineStack());
  HADAL_TRY(made->config_, weights::load_model_config(settings.model.model_dir + "/config.json"));
  HADAL_TRY(tokenizer::Tokenizer loaded,
            tokenizer::Tokenizer::load(settings.model.model_dir + "/tokenizer.json"));
  made->tokenizer_ = std::make_unique<tokenizer::Tokenizer>(std::move(loaded));
  step::EngineConfig engine;
  engine.max_waiting = settings.max_waiting;
  engine.max_context = settings.max_context;
  engine.prefix_cache = settings.prefix_cache;
  engine.sched.block_tokens = static_cast<uint32_t>(settings.model.block_tokens);
  if (settings.model.backend == "script") {
    HADAL_TRY_VOID(made->make_script(settings, engine));
  } else {
    HADAL_TRY_VOID(made->make_model(settings, engine));
  }
  made->engine_ = std::make_unique<step::Engine>(engine, *made->runner_, made->clock_, registry);
  if (const std::string warning = room_warning(made->engine_->limits(), engine.n_blocks,
                                               engine.sched.block_tokens, made->memory_words_);
      !warning.empty()) {
    HADAL_LOG(kWarning, "engine", "{}", warning);
  }
  return made;
}

core::Status EngineStack::make_script(const EngineSettings& settings, step::EngineConfig& engine) {
  engine.n_blocks = chosen(settings.device_blocks, kScriptBlocks);
  engine.sched.max_running = chosen(settings.max_running, kScriptRunning);
  engine.sched.step_tokens = chosen(settings.step_tokens, kScriptStepTokens);
  engine.sched.prefill_chunk = chosen(settings.prefill_chunk, engine.sched.step_tokens);
  runner_ = std::make_unique<step::ScriptRunner>(engine.sched.max_running,
                                                 static_cast<uint32_t>(tokenizer_->size()));
  resolved_json_ = fmt::format(
      R"({{"backend":"script","device_blocks":{},"block_tokens":{},"max_running":{},"step_tokens":{},"max_context":{}}})",
      engine.n_blocks, engine.sched.block_tokens, engine.sched.max_running,
      engine.sched.step_tokens, runner_->traits().max_context);
  return {};
}

core::Status EngineStack::make_model(const EngineSettings& settings, step::EngineConfig& engine) {
  HADAL_TRY(std::unique_ptr<ops::Backend> backend, make_backend(settings.model));
  const bool on_host = backend->device().reads_host_memory();
  if (settings.max_context > config_.max_positions) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("--max-context {}: this model has {} positions; give at most "
                                   "that many",
                                   settings.max_context, config_.max_positions),
                       "max-context"};
  }
  step::ModelRunnerConfig runner;
  HADAL_TRY(runner.replay, parse_replay(settings.model.replay));
  runner.n_slots = chosen(settings.max_running, on_host ? kModelRunning : kAcceleratorRunning);
  runner.max_rows =
      std::max(chosen(settings.step_tokens, on_host ? kModelStepTokens : kAcceleratorStepTokens),
               runner.n_slots);
  runner.max_context =
      settings.max_context != 0
          ? settings.max_context
          : static_cast<uint32_t>(std::min(config_.max_positions, kDefaultContext));
  const auto block_tokens = static_cast<uint32_t>(settings.model.block_tokens);
  const uint64_t whole_context = (runner.max_context + block_tokens - 1) / block_tokens;
  HADAL_TRY(loaded_,
            load_model(settings.model,
                       {.limits = step::ModelRunner::step_limits(runner),
                        .n_blocks = chosen<uint64_t>(settings.device_blocks, whole_context + 1),
                        .n_slots = runner.n_slots},
                       std::move(backend)));
  device::Device& device = loaded_.backend->device();
  const model::Model& model = *loaded_.model;
  const auto slab = static_cast<uint64_t>(model.kv_layout().slab_bytes);
  // By default a tenth of what is free on the host, nine of an accelerator's tenths behind all
  // else; but room for two whole contexts, and for every sequence that may run at a common length.
  const step::RunnerPlan fixed = step::ModelRunner::plan(model, runner);
  const uint64_t free = device.free_bytes();
  const uint64_t others = fixed.slots_bytes + fixed.workspace_bytes + fixed.logits_bytes;
  const uint64_t share = on_host ? free / 10 : (free > others ? free - others : 0) / 10 * 9;
  const uint64_t by_bytes = chosen(settings.device_bytes, share) / slab;
  if (settings.device_blocks == 0 && settings.device_bytes != 0 && by_bytes == 0) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("--kv.device-bytes {} holds no block: one of {} tokens takes {} "
                                   "bytes, a context of {} tokens {}",
                                   settings.device_bytes, block_tokens, slab, runner.max_context,
                                   whole_context * slab),
                       "kv.device-bytes"};
  }
  const uint64_t enough = std::max<uint64_t>(
      2 * whole_context, uint64_t{runner.n_slots} * std::min<uint64_t>(whole_context, 64));
  runner.n_blocks =
      settings.device_blocks != 0 ? settings.device_blocks
      : settings.device_bytes != 0
          ? static_cast<uint32_t>(std::clamp<uint64_t>(by_bytes, 1, 1u << 26))
          : static_cast<uint32_t>(std::clamp<uint64_t>(by_bytes, whole_context + 1, enough));
  const auto slot_bytes = static_cast<uint64_t>(model.slot_layout().slot_bytes);
  runner.n_snapshots =
      settings.prefix_cache
          ? static_cast<uint32_t>(std::clamp<uint64_t>(
                chosen<uint64_t>(settings.snapshot_bytes, 256u << 20) / slot_bytes, 4, 4096))
          : 0;
  runner.fingerprint = fmt::format("{}:{}:{}:{}", loaded_.backend->name(), model.weight_bytes(),
                                   config_.vocab, settings.model.replay);
  runner.tokenizer = tokenizer_.get();
  const auto n_slots = static_cast<int32_t>(runner.n_slots);
  HADAL_TRY(auto sampler,
            loaded_.backend->make_sampler({.n_vocab = static_cast<int32_t>(config_.vocab),
                                           .n_slots = n_slots,
                                           .max_rows = n_slots}));
  HADAL_TRY(auto made, step::ModelRunner::make(model, device, runner, std::move(sampler)));
  engine.n_blocks = runner.n_blocks;
  engine.sched.block_tokens = block_tokens;
  engine.sched.max_running = runner.n_slots;
  engine.sched.step_tokens = runner.max_rows;
  engine.sched.prefill_chunk =
      chosen(settings.prefill_chunk, settings.model.prefill_chunk > 0
                                         ? static_cast<uint32_t>(settings.model.prefill_chunk)
                                         : runner.max_rows);
  engine.max_context = runner.max_context;
  const step::RunnerPlan plan = step::ModelRunner::plan(model, runner);
  resolved_json_ = fmt::format(
      R"({{"backend":"{}","device":"{}","weight_bytes":{},"device_blocks":{},"block_tokens":{},"block_bytes":{},"kv_token_bytes":{:g},"slots":{},"slot_bytes":{},"snapshots":{},"step_tokens":{},"max_context":{},"kv_bytes":{},"snapshot_bytes":{},"workspace_bytes":{}}})",
      loaded_.backend->name(), device.description(), model.weight_bytes(), runner.n_blocks,
      block_tokens, slab, static_cast<double>(slab) / block_tokens, runner.n_slots, slot_bytes,
      runner.n_snapshots, runner.max_rows, runner.max_context, plan.blocks_bytes,
      plan.snapshots_bytes, plan.workspace_bytes);
  constexpr double kMb = 1e6;
  memory_words_ = fmt::format(
      " (memory: weights {:.1f} MB, {} blocks {:.1f} MB, {} running requests {:.1f} MB, {} kept "
      "windows {:.1f} MB, activations {:.1f} MB)",
      static_cast<double>(model.weight_bytes()) / kMb, runner.n_blocks,
      static_cast<double>(plan.blocks_bytes) / kMb, runner.n_slots,
      static_cast<double>(plan.slots_bytes) / kMb, runner.n_snapshots,
      static_cast<double>(plan.snapshots_bytes) / kMb,
      static_cast<double>(plan.workspace_bytes) / kMb);
  runner_ = std::move(made);
  return {};
}

}  // namespace hadal::main
