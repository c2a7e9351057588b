#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compute/model/logit_rows.h"
#include "compute/model/model.h"
#include "compute/ops/step_batch.h"
#include "main/loaded_model.h"

namespace hadal::test {

// One golden model with a block pool and slots, driven as the engine drives it.
struct RigOptions {
  std::string name = "a-tiny";
  int threads = 1;  // barriers crawl on a machine with more work than cores; threads change no bit
  int32_t block_tokens = 8;
  int32_t ring_tokens = 0;
  int32_t max_rows = 320;
};

// A sequence as the engine sees it: ids so far, slot, blocks.
struct Seq {
  uint32_t slot = 0;
  int32_t length = 0;  // committed
  std::vector<uint32_t> blocks;
};

// What to run of one sequence in a step.
struct Piece {
  Seq* seq = nullptr;
  std::vector<int32_t> ids;
  int32_t n_logits = 1;
  int32_t depth_from = 0;
  ops::Replay replay = ops::Replay::kExact;
  int32_t window_floor = 0;
  int32_t write_from = 0;
  int32_t accept = -1;  // rows to commit; -1: all
  std::vector<uint8_t> image = {};
};

using Logits = std::vector<std::vector<float>>;  // one vector a row, in the order of the pieces

class Rig {
 public:
  explicit Rig(const RigOptions& options = {});

  // A new sequence with blocks for `n_tokens`.
  Seq start(int32_t n_tokens);
  Logits step(const std::vector<Piece>& pieces);
  // Prefills ids in chunks of the given size; the last row's logits.
  std::vector<float> prefill(Seq& seq, const std::vector<int32_t>& ids, int32_t chunk,
                             ops::Replay replay = ops::Replay::kExact, bool whole = false);
  // One row's logits for each id in turn.
  Logits decode(Seq& seq, const std::vector<int32_t>& ids);

  std::vector<std::byte> slot_bytes(const Seq& seq);
  std::vector<std::byte> block_bytes(const Seq& seq, int32_t n_tokens);
  const model::Model& model() const { return *loaded_.model; }
  const ops::KvView& kv() const { return kv_; }
  device::Stream& stream() { return *stream_; }
  const weights::ModelConfig& config() const { return loaded_.config; }
  const weights::Checkpoint& checkpoint() const { return *loaded_.checkpoint; }

 private:
  main::LoadedModel loaded_;
  model::WorkspacePtr workspace_;
  std::unique_ptr<device::Stream> stream_;
  model::LogitRows logits_;
  device::Buffer slabs_, slots_;
  ops::KvView kv_;
  uint32_t next_slot_ = 0, next_block_ = 0;
  ops::StepBatch batch_;
};

// Ids that look random, never the image id.
std::vector<int32_t> some_ids(const weights::ModelConfig& config, int32_t n, uint32_t seed);

}  // namespace hadal::test
