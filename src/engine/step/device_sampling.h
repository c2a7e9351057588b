#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute/device/device.h"
#include "compute/model/model.h"
#include "compute/ops/sampler.h"
#include "engine/step/row_limits.h"
#include "engine/step/step_runner.h"

namespace hadal::step {

// Sampling where the logits are: what a step's rows ask for goes to the device's sampler behind the
// forward pass, ids and the asked log-probabilities come back. Gives the ids that
// sampling::sample_row gives on the same logits.
class DeviceSampling {
 public:
  static core::Result<std::unique_ptr<DeviceSampling>> make(const model::Model& model,
                                                            device::Device& device,
                                                            std::unique_ptr<ops::Sampler> sampler,
                                                            uint32_t n_slots);

  // The slot's sequence ended or another begins.
  void forget(uint32_t slot, device::Stream& stream);
  // Queues logits and choice of the chunks that sample, in their order.
  void launch(std::span<const RunChunk> chunks, RowLimiter& limits, model::Workspace& workspace,
              device::Stream& stream);
  // The i-th of them, after the stream was synchronised.
  void take(int32_t i, RunResult& result) const;

 private:
  DeviceSampling(const model::Model& model, std::unique_ptr<ops::Sampler> sampler, uint32_t n_slots)
      : model_(model), sampler_(std::move(sampler)), n_counted_(n_slots) {}
  core::Status count(const RunChunk& chunk, device::Stream& stream);
  ops::SampleRow row_of(const RunChunk& chunk, RowLimiter& limits);

  const model::Model& model_;
  const std::unique_ptr<ops::Sampler> sampler_;
  device::Buffer logits_;          // [n_slots, vocab] f32, device
  std::vector<size_t> n_counted_;  // of each slot's history, tokens that the sampler knows
  std::vector<ops::SampleRow> rows_;
  std::vector<std::string> errors_;  // of rows whose limits cannot be kept to; else ""
  core::Status queued_;              // of the last launch
};

}  // namespace hadal::step
