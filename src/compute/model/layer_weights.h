#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/core/result.h"
#include "compute/device/device.h"
#include "compute/model/model.h"
#include "compute/ops/backend.h"

namespace hadal::weights {
class Checkpoint;
struct ModelConfig;
}  // namespace hadal::weights

namespace hadal::model {

using LinearPtr = std::unique_ptr<ops::Linear>;

// A hyper-connection site: fn packed, base [2C + C*C] and scale [3] f32 on the device.
struct SiteWeights {
  LinearPtr fn;
  const float* base = nullptr;
  const float* scale = nullptr;
  ops::HcSite site() const { return {fn.get(), base, scale}; }
};

struct EngramWeights {
  LinearPtr wkv;
  const uint16_t* q_weight = nullptr;  // [C, H]
  const uint16_t* k_weight = nullptr;
  const uint8_t* table = nullptr;  // E4M3 [rows, d_engram], in the checkpoint's mapping
  const uint8_t* scale = nullptr;  // E8M0 [rows, d_engram / 32], likewise
  const int64_t* multipliers = nullptr;
  const int64_t* primes = nullptr;
  const int64_t* offsets = nullptr;
};

// Vectors are device pointers into ModelWeights::params. Pointers are null where a role is absent.
struct LayerWeights {
  SiteWeights attn_site, ffn_site;
  const uint16_t* attn_norm = nullptr;
  const uint16_t* ffn_norm = nullptr;
  LinearPtr q_kv;  // wq_a over wkv
  const uint16_t* q_norm = nullptr;
  const uint16_t* kv_norm = nullptr;
  LinearPtr wq_b, wo_a, wo_b;
  const float* sink = nullptr;
  LinearPtr compress;  // compressor.wkv, over wgate at ratio > 1
  const uint16_t* compress_norm = nullptr;
  LinearPtr index_wk;
  const uint16_t* index_k_norm = nullptr;
  LinearPtr index_wq, index_weights;
  LinearPtr gate;
  const float* bias = nullptr;
  const float* bias_image = nullptr;
  std::unique_ptr<ops::Experts> experts;
  EngramWeights engram;
};

// Tables that are read in the checkpoint's mapping, a few rows at a time. Linux maps up to 16 pages
// around each row that is touched, whatever it is advised: unless they are let go, a long prompt
// makes most of a table resident beside the weights.
struct MappedTables {
  const weights::Checkpoint* checkpoint = nullptr;  // outlives the model
  std::vector<std::span<const std::byte>> bytes;    // none where the device keeps copies
  // Their pages leave this process and stay in the page cache. Any thread, whoever reads them.
  void let_go() const;
};

struct ModelWeights {
  std::vector<LayerWeights> layers;
  const uint16_t* embed = nullptr;  // [vocab, H]; the checkpoint's mapping on a host device
  const uint16_t* norm = nullptr;
  LinearPtr head;
  const int32_t* token_map = nullptr;
  int32_t pad = 0;  // compressed id of Engram's pad token
  std::vector<device::Buffer> params;
  std::vector<std::unique_ptr<device::HostView>> views;  // of tables that stay in the checkpoint
  MappedTables mapped;
  uint64_t bytes = 0;  // device memory, packed matrices and vectors
};

core::Result<ModelWeights> load_weights(const weights::Checkpoint& checkpoint,
                                        const weights::ModelConfig& config,
                                        const ModelOptions& options, ops::Backend& backend);

}  // namespace hadal::model
