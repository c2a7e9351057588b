#include "compute/model/layer_weights.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include <fmt/format.h>

#include "compute/model/params.h"
#include "compute/weights/checkpoint.h"
#include "compute/weights/engram_tables.h"
#include "compute/weights/model_config.h"

namespace hadal::model {
namespace {

using ops::ExpertSource;
using ops::WeightFormat;
using ops::WeightSource;
using weights::StoredType;
using weights::Tensor;

// The released embedding (1.3 GB) goes to the device, an Engram table (tens of GB) does not.
constexpr uint64_t kCopiedTable = 2ull << 30;

WeightFormat format_of(StoredType type) {
  switch (type) {
    case StoredType::kE4m3:
      return WeightFormat::kFp8Tile;
    case StoredType::kI8:
      return WeightFormat::kFp4Row;
    case StoredType::kF32:
      return WeightFormat::kF32;
    case StoredType::kBf16:
    case StoredType::kE8m0:
      break;
  }
  return WeightFormat::kBf16;
}

// Turns named tensors into linears and device vectors. Shapes and types were compared with the
// config's layout before; here only absence is an error.
class Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const weights::ModelConfig& config,
         ops::Backend& backend, Params& params,
         const std::function<void(uint64_t, uint64_t)>& on_progress)
      : checkpoint_(checkpoint),
        config_(config),
        backend_(backend),
        params_(params),
        on_progress_(on_progress) {
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      const bool packed = (name.starts_with("layers.") || name.starts_with("head.")) &&
                          name.find(".engram.embed.") == std::string::npos;
      if (packed) n_to_pack_ += tensor.bytes.size();
    }
  }

  core::Result<const Tensor*> tensor(const std::string& name) const {
    const Tensor* t = checkpoint_.find(name);
    if (t == nullptr) {
      return core::Error{core::Code::kCorrupt,
                         fmt::format("{}: tensor {} is missing; `hadal inspect {}` lists what else "
                                     "is missing or of the wrong shape",
                                     checkpoint_.folder(), name, checkpoint_.folder())};
    }
    return t;
  }

  core::Result<WeightSource> source(const std::string& name) {
    HADAL_TRY(const Tensor* w, tensor(name + ".weight"));
    WeightSource s;
    s.format = format_of(w->type);
    s.n = w->shape.at(0);
    s.k = w->shape.at(1) * (s.format == WeightFormat::kFp4Row ? 2 : 1);
    s.weight = w->bytes.data();
    s.mapped = true;
    if (s.format == WeightFormat::kFp8Tile || s.format == WeightFormat::kFp4Row) {
      HADAL_TRY(const Tensor* scale, tensor(name + ".scale"));
      s.scale = reinterpret_cast<const uint8_t*>(scale->bytes.data());
      consumed_.push_back(scale->bytes);
    }
    consumed_.push_back(w->bytes);
    return s;
  }

  core::Result<LinearPtr> linear(const std::string& name, const std::string& below = {}) {
    HADAL_TRY(WeightSource first, source(name));
    std::vector<WeightSource> stack = {first};
    if (!below.empty()) {
      HADAL_TRY(WeightSource second, source(below));
      if (first.format == WeightFormat::kBf16 && second.format == WeightFormat::kF32)
        narrow(second);
      stack.push_back(second);
    }
    HADAL_TRY(LinearPtr packed, backend_.ops().make_linear(stack));
    bytes_ += packed->bytes();
    drop_consumed();
    return packed;
  }

  // F32 values that are bf16 numbers (the audit saw to it), as bf16.
  void narrow(WeightSource& s) {
    const size_t n = static_cast<size_t>(s.n * s.k);
    narrowed_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, static_cast<const std::byte*>(s.weight) + 4 * i, 4);
      narrowed_[i] = static_cast<uint16_t>(bits >> 16);
    }
    s.format = WeightFormat::kBf16;
    s.weight = narrowed_.data();
    s.mapped = false;
  }

  // The sources repacked so far leave resident memory, else a load would peak at twice the weights.
  void drop_consumed() {
    for (const std::span<const std::byte> bytes : consumed_) {
      checkpoint_.drop(bytes);
      n_packed_ += bytes.size();
    }
    if (on_progress_) on_progress_(std::min(n_packed_, n_to_pack_), n_to_pack_);
    consumed_.clear();
  }

  template <class T>
  core::Status vector(const std::string& name, const T*& out) {
    HADAL_TRY(const Tensor* t, tensor(name));
    HADAL_TRY(const void* p, params_.put(t->bytes.data(), t->bytes.size()));
    out = static_cast<const T*>(p);
    return {};
  }
  template <class T>
  core::Status table(const std::vector<T>& values, const T*& out) {
    HADAL_TRY(const void* p, params_.put(values.data(), values.size() * sizeof(T)));
    out = static_cast<const T*>(p);
    return {};
  }
  // Read by rows: in place where the device can; else copied unless it is large, then through a
  // view of the mapping, of which a step reads a few rows.
  template <class T>
  core::Status rows(const std::string& name, const T*& out) {
    HADAL_TRY(const Tensor* t, tensor(name));
    device::Device& device = backend_.device();
    if (device.reads_host_memory()) {
      checkpoint_.advise_random(t->bytes);
      mapped_.push_back(t->bytes);
      out = reinterpret_cast<const T*>(t->bytes.data());
      return {};
    }
    if (t->bytes.size() <= kCopiedTable) return vector(name, out);
    checkpoint_.advise_random(t->bytes);
    HADAL_TRY(auto view, device.view_host(t->bytes.data(), t->bytes.size()));
    if (view == nullptr) return vector(name, out);
    out = static_cast<const T*>(view->data());
    views_.push_back(std::move(view));
    return {};
  }
  std::vector<std::unique_ptr<device::HostView>> take_views() { return std::move(views_); }
  MappedTables take_mapped() { return {&checkpoint_, std::move(mapped_)}; }

  core::Status site(const std::string& prefix, SiteWeights& out) {
    HADAL_TRY(const Tensor* fn, tensor(prefix + "_fn"));
    const WeightSource s = {.format = WeightFormat::kF32,
                            .n = fn->shape.at(0),
                            .k = fn->shape.at(1),
                            .weight = fn->bytes.data()};
    HADAL_TRY(out.fn, backend_.ops().make_mix(s, config_.hc_mult));
    bytes_ += out.fn->bytes();
    HADAL_TRY_VOID(vector(prefix + "_base", out.base));
    return vector(prefix + "_scale", out.scale);
  }

  core::Result<ExpertSource> expert(const std::string& prefix) {
    ExpertSource e;
    HADAL_TRY(e.w1, source(prefix + ".w1"));
    HADAL_TRY(e.w3, source(prefix + ".w3"));
    HADAL_TRY(e.w2, source(prefix + ".w2"));
    return e;
  }

  core::Status attention(const std::string& p, const weights::LayerRole& role, LayerWeights& out) {
    HADAL_TRY(out.q_kv, linear(p + "wq_a", p + "wkv"));
    HADAL_TRY_VOID(vector(p + "q_norm.weight", out.q_norm));
    HADAL_TRY_VOID(vector(p + "kv_norm.weight", out.kv_norm));
    HADAL_TRY(out.wq_b, linear(p + "wq_b"));
    HADAL_TRY_VOID(vector(p + "attn_sink", out.sink));
    HADAL_TRY(WeightSource wo_a, source(p + "wo_a"));
    HADAL_TRY(out.wo_a, backend_.ops().make_grouped(wo_a, config_.o_groups));
    bytes_ += out.wo_a->bytes();
    HADAL_TRY(out.wo_b, linear(p + "wo_b"));
    if (role.writes_kv) {
      const std::string gate = role.ratio > 1 ? p + "compressor.wgate" : std::string();
      HADAL_TRY(out.compress, linear(p + "compressor.wkv", gate));
      HADAL_TRY_VOID(vector(p + "compressor.norm.weight", out.compress_norm));
      HADAL_TRY(out.index_wk, linear(p + "indexer.wk"));
      HADAL_TRY_VOID(vector(p + "indexer.k_norm.weight", out.index_k_norm));
    }
    if (role.searches) {
      HADAL_TRY(out.index_wq, linear(p + "indexer.wq_b"));
      HADAL_TRY(out.index_weights, linear(p + "indexer.weights_proj"));
    }
    return {};
  }

  core::Status moe(const std::string& p, LayerWeights& out) {
    HADAL_TRY(out.gate, linear(p + "gate"));
    HADAL_TRY_VOID(vector(p + "gate.bias", out.bias));
    HADAL_TRY_VOID(vector(p + "gate.bias_vl", out.bias_image));
    std::vector<ExpertSource> routed;
    for (int32_t e = 0; e < config_.n_experts; ++e) {
      HADAL_TRY(ExpertSource s, expert(fmt::format("{}experts.{}", p, e)));
      routed.push_back(s);
    }
    HADAL_TRY(ExpertSource shared, expert(p + "shared_experts"));
    HADAL_TRY(out.experts, backend_.ops().make_experts(routed, shared));
    bytes_ += out.experts->bytes();
    return {};
  }

  core::Status engram(const std::string& p, const weights::EngramHash& hash, EngramWeights& out) {
    HADAL_TRY(out.wkv, linear(p + "wkv"));
    HADAL_TRY_VOID(vector(p + "q_weight", out.q_weight));
    HADAL_TRY_VOID(vector(p + "k_weight", out.k_weight));
    HADAL_TRY_VOID(rows(p + "embed.weight", out.table));
    HADAL_TRY_VOID(rows(p + "embed.scale", out.scale));
    HADAL_TRY_VOID(table(hash.multipliers, out.multipliers));
    HADAL_TRY_VOID(table(hash.primes, out.primes));
    return table(hash.offsets, out.offsets);
  }

  uint64_t bytes() const { return bytes_; }

 private:
  const weights::Checkpoint& checkpoint_;
  std::vector<std::span<const std::byte>> consumed_;
  std::vector<uint16_t> narrowed_;  // of the last narrow()
  const weights::ModelConfig& config_;
  ops::Backend& backend_;
  Params& params_;
  std::vector<std::unique_ptr<device::HostView>> views_;
  std::vector<std::span<const std::byte>> mapped_;
  const std::function<void(uint64_t, uint64_t)>& on_progress_;
  uint64_t bytes_ = 0;
  uint64_t n_packed_ = 0, n_to_pack_ = 0;  // bytes of the checkpoint
};

core::Status load_layer(Loader& load, int32_t l, const weights::ModelConfig& config,
                        const std::vector<weights::EngramHash>& hashes, LayerWeights& out) {
  const std::string p = fmt::format("layers.{}.", l);
  const weights::LayerRole& role = config.roles[static_cast<size_t>(l)];
  HADAL_TRY_VOID(load.site(p + "hc_attn", out.attn_site));
  HADAL_TRY_VOID(load.site(p + "hc_ffn", out.ffn_site));
  HADAL_TRY_VOID(load.vector(p + "attn_norm.weight", out.attn_norm));
  HADAL_TRY_VOID(load.vector(p + "ffn_norm.weight", out.ffn_norm));
  HADAL_TRY_VOID(load.attention(p + "attn.", role, out));
  HADAL_TRY_VOID(load.moe(p + "ffn.", out));
  if (role.engram >= 0)
    return load.engram(p + "engram.", hashes[static_cast<size_t>(role.engram)], out.engram);
  return {};
}

}  // namespace

void MappedTables::let_go() const {
  for (const std::span<const std::byte> table : bytes) checkpoint->drop(table);
}

core::Result<ModelWeights> load_weights(const weights::Checkpoint& checkpoint,
                                        const weights::ModelConfig& config,
                                        const ModelOptions& options, ops::Backend& backend) {
  HADAL_TRY(std::unique_ptr<device::Stream> stream, backend.device().make_stream());
  Params params(backend.device(), *stream);
  Loader load(checkpoint, config, backend, params, options.on_progress);
  ModelWeights out;
  std::vector<weights::EngramHash> hashes;
  if (!config.engram.layers.empty()) {
    HADAL_TRY(hashes, weights::make_engram_hashes(config));
    HADAL_TRY_VOID(load.table(options.token_map, out.token_map));
    out.pad = options.token_map.at(static_cast<size_t>(config.engram.pad_token));
  }
  HADAL_TRY_VOID(load.rows("embed.weight", out.embed));
  HADAL_TRY_VOID(load.vector("norm.weight", out.norm));
  HADAL_TRY(out.head, load.linear("head"));
  out.layers.resize(static_cast<size_t>(config.n_layers));
  for (int32_t l = 0; l < config.n_layers; ++l) {
    HADAL_TRY_VOID(load_layer(load, l, config, hashes, out.layers[static_cast<size_t>(l)]));
    load.drop_consumed();
  }
  HADAL_TRY_VOID(stream->synchronize());
  out.bytes = load.bytes() + params.bytes();
  out.params = params.take();
  out.views = load.take_views();
  out.mapped = load.take_mapped();
  return out;
}

}  // namespace hadal::model
