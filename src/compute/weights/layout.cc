#include "compute/weights/layout.h"

#include <fmt/format.h>

namespace hadal::weights {
namespace {

// Adds tensors under a prefix; keeps one ExpectedTensor alive instead of one per call.
class Emitter {
 public:
  explicit Emitter(const std::function<void(const ExpectedTensor&)>& each) : each_(each) {}

  void optional_group(bool optional) { optional_ = optional; }

  void put(std::string name, StoredType type, std::vector<int64_t> shape) {
    each_({std::move(name), type, std::move(shape), optional_, false});
  }
  void bf16_or_f32(std::string name, std::vector<int64_t> shape) {
    each_({std::move(name), StoredType::kBf16, std::move(shape), optional_, true});
  }
  void bf16(std::string name, std::vector<int64_t> shape) {
    put(std::move(name), StoredType::kBf16, std::move(shape));
  }
  void f32(std::string name, std::vector<int64_t> shape) {
    put(std::move(name), StoredType::kF32, std::move(shape));
  }
  // FP8 matrix [n, k] with one scale per 32x32 tile.
  void fp8(const std::string& name, int64_t n, int64_t k) {
    put(name + ".weight", StoredType::kE4m3, {n, k});
    put(name + ".scale", StoredType::kE8m0, {(n + 31) / 32, (k + 31) / 32});
  }
  // FP4 matrix [n, k], two to a byte, with one scale per row and 32 inputs.
  void fp4(const std::string& name, int64_t n, int64_t k) {
    put(name + ".weight", StoredType::kI8, {n, k / 2});
    put(name + ".scale", StoredType::kE8m0, {n, k / 32});
  }

 private:
  const std::function<void(const ExpectedTensor&)>& each_;
  bool optional_ = false;
};

// What backbone and draft layers share.
void block(Emitter& out, const ModelConfig& c, const std::string& p, int32_t n_experts) {
  const int64_t H = c.d_hidden;
  const int64_t D = c.d_head;
  const int64_t all_heads = int64_t{c.n_heads} * D;
  out.fp8(p + "attn.wq_a", c.q_lora, H);
  out.fp8(p + "attn.wq_b", all_heads, c.q_lora);
  out.fp8(p + "attn.wkv", D, H);
  out.fp8(p + "attn.wo_a", int64_t{c.o_groups} * c.o_lora, all_heads / c.o_groups);
  out.fp8(p + "attn.wo_b", H, int64_t{c.o_groups} * c.o_lora);
  out.bf16(p + "attn.q_norm.weight", {c.q_lora});
  out.bf16(p + "attn.kv_norm.weight", {D});
  out.f32(p + "attn.attn_sink", {c.n_heads});
  out.bf16(p + "attn_norm.weight", {H});
  out.bf16(p + "ffn_norm.weight", {H});
  const int64_t mixes = int64_t{2 + c.hc_mult} * c.hc_mult;
  for (const char* site : {"attn", "ffn"}) {
    out.f32(fmt::format("{}hc_{}_fn", p, site), {mixes, c.hc_mult * H});
    out.f32(fmt::format("{}hc_{}_base", p, site), {mixes});
    out.f32(fmt::format("{}hc_{}_scale", p, site), {3});
  }
  out.bf16(p + "ffn.gate.weight", {n_experts, H});
  out.f32(p + "ffn.gate.bias", {n_experts});
  out.f32(p + "ffn.gate.bias_vl", {n_experts});
  out.fp8(p + "ffn.shared_experts.w1", c.d_expert, H);
  out.fp8(p + "ffn.shared_experts.w3", c.d_expert, H);
  out.fp8(p + "ffn.shared_experts.w2", H, c.d_expert);
  for (int32_t e = 0; e < n_experts; ++e) {
    const std::string expert = fmt::format("{}ffn.experts.{}.", p, e);
    out.fp4(expert + "w1", c.d_expert, H);
    out.fp4(expert + "w3", c.d_expert, H);
    out.fp4(expert + "w2", H, c.d_expert);
  }
}

void layer_extras(Emitter& out, const ModelConfig& c, const std::string& p, const LayerRole& role) {
  const int64_t H = c.d_hidden;
  if (role.writes_kv) {
    out.bf16(p + "attn.compressor.wkv.weight", {c.d_head, H});
    out.bf16(p + "attn.compressor.norm.weight", {c.d_head});
    if (role.ratio > 1) out.bf16_or_f32(p + "attn.compressor.wgate.weight", {c.d_head, H});
    out.bf16(p + "attn.indexer.wk.weight", {c.d_index, c.d_head});
    out.bf16(p + "attn.indexer.k_norm.weight", {c.d_index});
  }
  if (role.searches) {
    out.fp8(p + "attn.indexer.wq_b", int64_t{c.index_heads} * c.d_index, c.q_lora);
    out.bf16(p + "attn.indexer.weights_proj.weight", {c.index_heads, H});
  }
  if (role.engram >= 0) {
    const int64_t rows = c.engram.n_rows[static_cast<size_t>(role.engram)];
    out.put(p + "engram.embed.weight", StoredType::kE4m3, {rows, c.engram.d_head});
    out.put(p + "engram.embed.scale", StoredType::kE8m0, {rows, c.engram.d_head / 32});
    out.fp8(p + "engram.wkv", H * (c.hc_mult + 1), int64_t{c.engram.n_columns()} * c.engram.d_head);
    out.bf16(p + "engram.q_weight", {c.hc_mult, H});
    out.bf16(p + "engram.k_weight", {c.hc_mult, H});
  }
}

void draft(Emitter& out, const ModelConfig& c) {
  const DraftConfig& d = c.draft;
  if (d.n_layers == 0) return;
  for (int32_t s = 0; s < d.n_layers; ++s) block(out, c, fmt::format("mtp.{}.", s), d.n_experts);
  const int64_t H = c.d_hidden;
  out.fp8("mtp.0.main_proj", H, static_cast<int64_t>(d.target_layers.size()) * H);
  out.bf16("mtp.0.main_norm.weight", {H});
  const std::string last = fmt::format("mtp.{}.", d.n_layers - 1);
  out.bf16(last + "norm.weight", {H});
  out.bf16(last + "markov_head.embed.weight", {c.vocab, d.markov_rank});
  out.bf16(last + "markov_head.head.weight", {c.vocab, d.markov_rank});
  out.bf16(last + "confidence_head.proj.weight", {1, H + d.markov_rank});
}

void vision(Emitter& out, const ModelConfig& c) {
  const VisionConfig& v = c.vision;
  if (v.n_layers == 0) return;
  const int64_t H = c.d_hidden;
  const int64_t W = v.d_hidden;
  out.bf16("vision.patch_embed.proj.weight", {W, int64_t{3} * v.patch * v.patch});
  out.bf16("vision.patch_embed.proj.bias", {W});
  for (int32_t b = 0; b < v.n_layers; ++b) {
    const std::string p = fmt::format("vision.blocks.{}.", b);
    out.bf16(p + "norm1.weight", {W});
    out.bf16(p + "attn.wqkv.weight", {3 * W, W});
    out.bf16(p + "attn.wqkv.bias", {3 * W});
    out.bf16(p + "attn.wo.weight", {W, W});
    out.bf16(p + "attn.wo.bias", {W});
    out.bf16(p + "norm2.weight", {W});
    out.bf16(p + "mlp.w1.weight", {int64_t{2} * v.d_inter, W});
    out.bf16(p + "mlp.w2.weight", {W, v.d_inter});
  }
  out.bf16("vision.norm.weight", {W});
  out.bf16("aligner.w1.weight", {H, W * v.downsample * v.downsample});
  out.bf16("aligner.w1.bias", {H});
  out.bf16("aligner.w2.weight", {H, H});
  out.bf16("aligner.w2.bias", {H});
  for (const char* name : {"image_start", "image_end", "image_newline"}) out.bf16(name, {H});
}

}  // namespace

uint64_t ExpectedTensor::n_bytes() const {
  auto n = static_cast<uint64_t>(stored_type_bytes(type));
  for (const int64_t dim : shape) n *= static_cast<uint64_t>(dim);
  return n;
}

void for_each_tensor(const ModelConfig& config,
                     const std::function<void(const ExpectedTensor&)>& each) {
  Emitter out(each);
  out.bf16("embed.weight", {config.vocab, config.d_hidden});
  out.bf16("norm.weight", {config.d_hidden});
  out.bf16("head.weight", {config.vocab, config.d_hidden});
  for (int32_t layer = 0; layer < config.n_layers; ++layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    block(out, config, prefix, config.n_experts);
    layer_extras(out, config, prefix, config.roles[static_cast<size_t>(layer)]);
  }
  out.optional_group(true);
  draft(out, config);
  vision(out, config);
}

LayoutTotals layout_totals(const ModelConfig& config) {
  LayoutTotals totals;
  for_each_tensor(config, [&totals](const ExpectedTensor& tensor) {
    ++totals.n_tensors;
    totals.n_bytes += tensor.n_bytes();
  });
  return totals;
}

}  // namespace hadal::weights
