#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compute/device/device.h"
#include "compute/model/logit_rows.h"
#include "compute/model/model.h"
#include "compute/ops/step_batch.h"
#include "engine/sampling/sampler.h"
#include "engine/step/device_sampling.h"
#include "engine/step/row_limits.h"
#include "engine/step/step_runner.h"

namespace hadal::step {

struct ModelRunnerConfig {
  uint32_t n_blocks = 0;     // slabs of the device pool
  uint32_t n_slots = 0;      // sequences in a step at most
  uint32_t n_snapshots = 0;  // slots' states kept in host memory
  uint32_t max_rows = 0;     // rows of a step at most
  uint32_t max_context = 0;
  ops::Replay replay = ops::Replay::kExact;
  std::string fingerprint;  // of the weights and of everything else that changes cached bits
  // For constraints on the output; null: a constraint is refused. Outlives the runner.
  const tokenizer::Tokenizer* tokenizer = nullptr;
};

// What the pools and the activations of a runner take, before anything is allocated.
struct RunnerPlan {
  uint64_t blocks_bytes = 0, slots_bytes = 0, snapshots_bytes = 0, workspace_bytes = 0,
           logits_bytes = 0;
  uint64_t total() const {
    return blocks_bytes + slots_bytes + snapshots_bytes + workspace_bytes + logits_bytes;
  }
};

// Runs steps on the model: bytes of blocks, slots and snapshots, the batch of a step, sampling of
// its last rows. Stream order: forward, logits | collect waits, samples, queues the commit | begin,
// save and the next forward queue behind it.
class ModelRunner final : public StepRunner {
 public:
  static model::StepLimits step_limits(const ModelRunnerConfig& config);
  static RunnerPlan plan(const model::Model& model, const ModelRunnerConfig& config);
  // `model` and `device` outlive the runner. With a sampler of the device tokens are chosen there,
  // else on the host. kOverloaded with the plan in words if memory does not suffice.
  static core::Result<std::unique_ptr<ModelRunner>> make(
      const model::Model& model, device::Device& device, const ModelRunnerConfig& config,
      std::unique_ptr<ops::Sampler> sampler = nullptr);

  const RunnerTraits& traits() const override { return traits_; }
  uint32_t tokens_per_step(const types::Request&) const override { return 1; }
  core::Status accept(const types::Request& request) const override;
  void begin(const SlotStart& start) override;
  void end(uint32_t slot) override;
  void save(uint32_t slot, uint32_t snapshot) override;
  void launch(std::span<const RunChunk> chunks) override;
  core::Status collect(std::vector<RunResult>& results) override;

 private:
  void seed(const SlotStart& start);

  // What penalties need to know of the sequence in a slot; made at its first use.
  struct SlotSeen {
    std::optional<sampling::SeenTokens> tokens;
    size_t n_counted = 0;
  };
  // A batch must not move until the stream has passed its commit, and the next one is built before:
  // two, in turn.
  struct Flight {
    ops::StepBatch batch;
    std::vector<ops::SeqChunk> chunks;
    std::vector<std::vector<uint8_t>> images;
    std::vector<int32_t> n_accepted;
  };

  ModelRunner(const model::Model& model, const ModelRunnerConfig& config);
  core::Status allocate(device::Device& device, const ModelRunnerConfig& config,
                        std::unique_ptr<ops::Sampler> sampler);
  void forget(uint32_t slot);
  void sample(const RunChunk& chunk, std::span<float> logits, RunResult& result);
  const sampling::SeenTokens* seen(const RunChunk& chunk);

  const model::Model& model_;
  const ops::Replay replay_;
  RunnerTraits traits_;
  device::Buffer slabs_, slots_, snapshots_;
  model::LogitRows logits_;
  ops::KvView kv_;
  model::WorkspacePtr workspace_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<DeviceSampling> device_sampling_;  // null: on the host
  sampling::Workspace sampling_;
  std::vector<SlotSeen> seen_;
  mutable RowLimiter limits_;         // accept() is for any thread
  std::vector<uint8_t> seed_images_;  // of seed()

  std::array<Flight, 2> flights_;
  size_t flight_ = 0;
  std::span<const RunChunk> running_;
};

}  // namespace hadal::step
