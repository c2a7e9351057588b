#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "compute/device/device.h"
#include "compute/device/view.h"
#include "compute/ops/backend.h"
#include "compute/ops/kv_layout.h"
#include "compute/ops/step_batch.h"

namespace hadal::weights {
class Checkpoint;
struct ModelConfig;
}  // namespace hadal::weights

namespace hadal::model {

// Sizes that a workspace is made for. A step may be smaller, never larger.
struct StepLimits {
  int32_t max_rows = 0;
  int32_t max_seqs = 0;
  int32_t max_logits = 0;   // rows that want logits
  int32_t max_context = 0;  // positions
};

struct ModelOptions {
  int32_t block_tokens = 128;
  int32_t ring_tokens = 0;  // 0: the window
  // Compressed ids of the vocabulary for Engram; empty only if the config has no Engram layers.
  std::vector<int32_t> token_map;
  // While loading: bytes of the checkpoint that are packed, of how many. May be empty.
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};
};

// Bytes by purpose, for plans that are made before anything is allocated.
struct WorkspacePlan {
  uint64_t rows = 0;     // activations
  uint64_t latents = 0;  // window latents and open groups of the step, kept until the commit
  uint64_t scratch = 0;  // the ops' own
  uint64_t total() const { return rows + latents + scratch; }
};

// All activations of one step, allocated once for its limits. Belongs to one model; one step at a
// time. Holds what the commit needs until the next forward.
class Workspace;
struct WorkspaceDeleter {
  void operator()(Workspace* workspace) const;
};
using WorkspacePtr = std::unique_ptr<Workspace, WorkspaceDeleter>;

// DeepSeek-V4.1-Flash, text model. See README.md for the contract of a step.
//
// Thread safety: const after load; one thread drives a workspace and its stream.
class Model {
 public:
  // Reads and repacks every tensor that the text model needs. `checkpoint` and `backend` must
  // outlive the model: embeddings and Engram tables are read in the checkpoint's mapping where the
  // device can.
  static core::Result<std::unique_ptr<Model>> load(const weights::Checkpoint& checkpoint,
                                                   const weights::ModelConfig& config,
                                                   ops::Backend& backend, ModelOptions options);
  ~Model();

  const weights::ModelConfig& config() const;
  const ops::KvLayout& kv_layout() const;
  const ops::SlotLayout& slot_layout() const;
  ops::BatchShape batch_shape() const;
  uint64_t weight_bytes() const;  // device memory of the weights

  WorkspacePlan plan_workspace(const StepLimits& limits) const;
  core::Result<WorkspacePtr> make_workspace(const StepLimits& limits) const;

  // Makes a slot the state of an empty sequence.
  void reset_slot(const ops::KvView& kv, uint32_t slot, device::Stream& stream) const;
  // The same for a sequence of `position` tokens whose rings do not exist (bounded prefix replay):
  // only length and n-gram history are set, from the tokens before `position`.
  void seed_slot(const ops::KvView& kv, uint32_t slot, int32_t position,
                 std::span<const int32_t> ids_before, std::span<const uint8_t> image_before,
                 device::Stream& stream) const;
  // A slot's bytes (slot_layout().slot_bytes) out and in, host or device memory. A snapshot
  // restored into any slot, with the same blocks, continues bit for bit.
  void save_slot(const ops::KvView& kv, uint32_t slot, std::byte* to, device::Stream& stream) const;
  void load_slot(const ops::KvView& kv, uint32_t slot, const std::byte* from,
                 device::Stream& stream) const;

  // Runs one step. Writes global entries of the groups that end in it; leaves slots untouched.
  // REQUIRES: `batch` lives until the stream is synchronised; blocks of every row exist.
  void forward(const ops::StepBatch& batch, const ops::KvView& kv, Workspace& workspace,
               device::Stream& stream) const;
  // Logits [n, vocab] f32 of batch.logit_rows[first, first + n) of the last forward.
  void logits(Workspace& workspace, int32_t first, int32_t n, device::Matrix<float> out,
              device::Stream& stream) const;
  // Makes the first n_accepted[s] rows of each sequence part of its slot. Exactly once per forward.
  // REQUIRES: `n_accepted` lives until the stream is synchronised.
  void commit(const ops::StepBatch& batch, std::span<const int32_t> n_accepted,
              const ops::KvView& kv, Workspace& workspace, device::Stream& stream) const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hadal::model
