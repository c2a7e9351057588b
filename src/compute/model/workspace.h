#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "compute/device/device.h"
#include "compute/device/view.h"
#include "compute/model/model.h"
#include "compute/ops/ops.h"
#include "compute/ops/step_batch.h"
#include "compute/weights/model_config.h"

namespace hadal::model {

// Every activation of a step with its shape; T = StepLimits::max_rows, C streams, H hidden.
struct Activations {
  ops::StepRows rows;             // device arrays of the step
  int32_t* n_accepted = nullptr;  // [max_seqs]
  // The arrays of the step, behind `rows` too, lie in one piece of memory from `step` on, the block
  // tables last: they go to the device in one copy.
  std::byte* step = nullptr;
  uint64_t step_bytes = 0;
  int32_t* n_latent = nullptr;    // [n_layers]
  int32_t* logit_rows = nullptr;  // [max_logits]
  int32_t* ids = nullptr;
  int32_t* positions = nullptr;
  int32_t* seq_of = nullptr;
  int32_t* row_of = nullptr;
  uint8_t* image = nullptr;
  ops::BatchSeq* seqs = nullptr;
  uint32_t* tables = nullptr;

  float* main_rope = nullptr;          // [T, R/2, 2]
  float* comp_rope = nullptr;          // [T, R/2, 2]
  std::vector<float*> group_rope;      // per source of ratio > 1: angles of the group's first token
  uint16_t* streams = nullptr;         // [T, C, H]
  float* pre = nullptr;                // [T, C]
  float* post = nullptr;               // [T, C]
  float* comb = nullptr;               // [T, C, C]
  device::Matrix<uint16_t> h, y;       // [T, H]
  device::Matrix<uint16_t> q_kv;       // [T, q_lora + d_head]
  device::Matrix<uint16_t> q;          // [T, N D]; the attention's output takes its place
  device::Matrix<uint8_t> iq;          // [T, index_heads * key record]
  device::Matrix<float> head_weight;   // [T, index_heads]
  device::Matrix<int32_t> list, pool;  // [T, top_k], [T, pool_blocks]
  int32_t* n_list = nullptr;           // [T]
  int32_t* n_pool = nullptr;           // [T]
  device::Matrix<uint16_t> u;          // [T, o_groups * o_lora]
  device::Matrix<float> route_logits;  // [T, experts]
  device::Matrix<int32_t> expert;      // [T, n_chosen]
  device::Matrix<float> expert_weight;
  device::Matrix<uint16_t> gram, gram_kv;     // [T, d_gram], [T, (C + 1) H]
  device::Matrix<uint16_t> last;              // [max_logits, H], normed final vectors
  std::vector<device::Matrix<float>> groups;  // per source: [T, 2 D] or [T, D]
  const float** group_rows = nullptr;         // [n_sources] device array of the same pointers
  uint8_t* latents = nullptr;                 // [n_layers][T][window record]
  ops::Ops::Scratch scratch;
};

// The host's side of Activations::step, twice, in turn: a copy that is still queued is not
// overwritten.
struct StepStaging {
  device::Buffer memory;
  std::unique_ptr<device::Event> sent;
};

// What pure decode steps of a row count did: run once as they are, recorded at the second one,
// played from then on.
struct DecodeGraph {
  bool warm = false;
  bool refused = false;  // it could not be recorded and is not tried again
  std::unique_ptr<device::Recording> recording;
};
inline constexpr size_t kMaxDecodeGraphs = 128;

class Workspace {
 public:
  StepLimits limits;
  ops::KvView kv;  // of the last call, so that queued ops may point to it
  Activations act;
  device::Buffer memory;
  std::array<StepStaging, 2> staging;
  size_t turn = 0;
  ops::KvView graph_kv;                   // what `graphs` were recorded with
  std::map<int32_t, DecodeGraph> graphs;  // by rows
};

// Lays the activations out from `base`, or only counts when it is null.
WorkspacePlan lay_out(const weights::ModelConfig& config, const ops::KvLayouts& layouts,
                      const StepLimits& limits, uint64_t scratch_bytes, std::byte* base,
                      Activations& act);

}  // namespace hadal::model
