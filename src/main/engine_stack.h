#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/core/clock.h"
#include "base/core/result.h"
#include "base/metrics/metrics.h"
#include "base/tokenizer/tokenizer.h"
#include "engine/step/engine.h"
#include "engine/step/step_runner.h"
#include "main/loaded_model.h"
#include "main/model_flags.h"

namespace hadal::main {

// What a person may ask of the engine; 0 means "choose for me".
struct EngineSettings {
  ModelFlags model;
  uint32_t device_blocks = 0;  // wins over device_bytes
  uint64_t device_bytes = 0;
  uint64_t snapshot_bytes = 0;  // windows kept for exact prefix hits
  bool prefix_cache = true;
  uint32_t step_tokens = 0;
  uint32_t prefill_chunk = 0;
  uint32_t max_running = 0;
  uint32_t max_waiting = 1024;
  uint32_t max_context = 0;
};

// The engine with all that it stands on, for the commands that generate: run, serve, generate.
// Backend "script" has no weights and needs tokenizer.json and config.json alone.
class EngineStack {
 public:
  static core::Result<std::unique_ptr<EngineStack>> make(const EngineSettings& settings,
                                                         metrics::Registry& registry);

  step::Engine& engine() { return *engine_; }
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  const weights::ModelConfig& config() const { return config_; }
  bool is_script() const { return loaded_.model == nullptr; }
  // What was resolved, as one JSON object: blocks, bytes, contexts, threads. A request takes
  // kv_token_bytes a token (whole blocks) and, while it runs, slot_bytes.
  const std::string& resolved_json() const { return resolved_json_; }

 private:
  EngineStack() = default;
  core::Status make_script(const EngineSettings& settings, step::EngineConfig& engine);
  core::Status make_model(const EngineSettings& settings, step::EngineConfig& engine);

  // In the order of construction; destroyed upwards.
  core::SystemClock clock_;
  weights::ModelConfig config_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  LoadedModel loaded_;
  std::unique_ptr<step::StepRunner> runner_;
  std::unique_ptr<step::Engine> engine_;
  std::string resolved_json_;
  std::string memory_words_;  // what takes how many bytes; "" without a model
};

// The model folder to use when --model is not given: models/demo beside the program, above it, or
// in the source tree. "" if none.
std::string default_model_dir();

}  // namespace hadal::main
