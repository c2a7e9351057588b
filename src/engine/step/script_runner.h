#pragma once

#include <vector>

#include "engine/step/step_runner.h"

namespace hadal::step {

// Plays each request's script in the model's place: same scheduler, cache, cancels and sinks, no
// weights. What it says depends on how much was said before and on nothing else.
class ScriptRunner final : public StepRunner {
 public:
  ScriptRunner(uint32_t n_slots, uint32_t n_vocab);
  const RunnerTraits& traits() const override { return traits_; }
  uint32_t tokens_per_step(const types::Request& request) const override;
  core::Status accept(const types::Request& request) const override;
  void begin(const SlotStart&) override {}
  void end(uint32_t) override {}
  void save(uint32_t, uint32_t) override {}
  void launch(std::span<const RunChunk> chunks) override { chunks_ = chunks; }
  core::Status collect(std::vector<RunResult>& results) override;

 private:
  RunnerTraits traits_;
  std::span<const RunChunk> chunks_;
};

}  // namespace hadal::step
