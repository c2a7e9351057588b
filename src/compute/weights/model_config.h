#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"

namespace hadal::weights {

// What a layer does, derived from the lists of source layers (docs/model.md 1.5).
struct LayerRole {
  int32_t ratio = 0;          // of the global cache that the layer reads; 0: window only
  int32_t kv_source = -1;     // layer whose entries it reads, -1: none
  int32_t index_source = -1;  // layer whose selection it uses, -1: none
  bool writes_kv = false;     // owns compressor and index keys
  bool searches = false;      // owns an index query
  bool makes_pool = false;    // publishes the candidate pool
  bool uses_pool = false;     // searches inside it
  int32_t engram = -1;        // index into engram.layers, -1: none
};

struct RopeScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_positions = 0;  // 0: no YaRN
};

struct EngramConfig {
  std::vector<int32_t> layers;
  std::vector<int64_t> n_rows;  // per layer
  int32_t max_ngram = 0;
  int32_t n_heads = 0;
  int32_t d_head = 0;
  int64_t vocab_base = 0;  // where the search for primes starts
  int32_t pad_token = 0;
  int64_t compressed_vocab = 0;
  int32_t n_columns() const { return (max_ngram - 1) * n_heads; }
};

struct DraftConfig {
  int32_t n_layers = 0;
  int32_t block = 0;
  int32_t noise_token = 0;
  std::vector<int32_t> target_layers;
  int32_t markov_rank = 0;
  int32_t n_experts = 0;
  int32_t n_experts_per_token = 0;
};

struct VisionConfig {
  int32_t n_layers = 0;  // 0: a text-only config
  int32_t d_hidden = 0;
  int32_t n_heads = 0;
  int32_t d_inter = 0;
  int32_t patch = 0;
  double rope_theta = 10000;
  int32_t downsample = 0;
  int32_t max_image_tokens = 0;
  int64_t min_pixels = 0;
  double max_wh_ratio = 0;  // 0: none
};

// config.json, validated. Every size of the model comes from here.
struct ModelConfig {
  int32_t bos_token = 0, eos_token = 1, pad_token = 2, image_token = -1;

  int64_t vocab = 0;
  int32_t d_hidden = 0;
  int32_t n_layers = 0;
  int32_t n_heads = 0;
  int32_t d_head = 0;
  int32_t d_rope = 0;
  int32_t q_lora = 0;
  int32_t o_lora = 0;
  int32_t o_groups = 0;
  int32_t window = 0;
  int64_t max_positions = 0;
  float norm_eps = 1e-20f;

  double rope_theta = 10000;            // layers of ratio 0 and draft layers, no YaRN
  double compress_rope_theta = 160000;  // layers of ratio > 0, with YaRN
  RopeScaling rope_scaling;

  std::vector<int32_t> compress_ratios;  // [n_layers + draft.n_layers]
  std::vector<int32_t> kv_sources;
  std::vector<int32_t> index_sources;
  int32_t index_heads = 0;
  int32_t d_index = 0;
  int32_t index_top_k = 0;
  int32_t pool_source = -1;  // -1: no candidate level
  int32_t pool_blocks = 0;
  int32_t pool_block = 0;

  int32_t hc_mult = 0;
  int32_t hc_sinkhorn_iters = 0;
  float hc_eps = 1e-6f;

  int32_t n_experts = 0;
  int32_t n_experts_per_token = 0;
  int32_t d_expert = 0;  // inner width of routed and shared experts
  bool norm_topk = true;
  float routed_scaling = 1;
  float swiglu_limit = 0;  // 0: no clamp

  EngramConfig engram;
  DraftConfig draft;
  VisionConfig vision;

  std::vector<LayerRole> roles;  // [n_layers]

  // First layer of the decoder half: everything above it keeps nothing but window rings, so that a
  // prefill needs it for the prompt's tail only. n_layers if no such split exists.
  int32_t split_layer = 0;
};

// Parses and checks; all mistakes in one Error (kInvalidRequest), one a line, each with the field's
// path and what to change. `origin` names the file in messages.
core::Result<ModelConfig> parse_model_config(std::string_view json, std::string_view origin);
core::Result<ModelConfig> load_model_config(const std::string& path);

}  // namespace hadal::weights
