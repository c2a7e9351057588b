#include "compute/weights/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "compute/weights/read_file.h"

namespace hadal::weights {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = 16 << 20;

// Reads fields of one JSON object and notes every mistake with the field's path.
class Reader {
 public:
  Reader(const json& object, std::string prefix, std::vector<std::string>& mistakes)
      : object_(object), prefix_(std::move(prefix)), mistakes_(mistakes) {}

  bool has(const char* name) const { return object_.contains(name) && !object_[name].is_null(); }

  void mistake(const char* name, std::string_view what) {
    mistakes_.push_back(fmt::format("{}{}: {}", prefix_, name, what));
  }

  template <typename T>
  void integer(const char* name, T& out, int64_t low, int64_t high) {
    if (!has(name)) {
      mistake(name, "missing; the released config.json has it");
      return;
    }
    optional_integer(name, out, low, high);
  }

  template <typename T>
  void optional_integer(const char* name, T& out, int64_t low, int64_t high) {
    if (!has(name)) return;
    const json& value = object_[name];
    if (!value.is_number_integer() || value < low || value > high) {
      mistake(name,
              fmt::format("must be an integer from {} to {}, is {}", low, high, shown(value)));
      return;
    }
    out = static_cast<T>(value.get<int64_t>());
  }

  template <typename T>
  void number(const char* name, T& out, double low, double high, bool required) {
    if (!has(name)) {
      if (required) mistake(name, "missing; the released config.json has it");
      return;
    }
    const json& value = object_[name];
    if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
      mistake(name,
              fmt::format("must be a number from {:g} to {:g}, is {}", low, high, shown(value)));
      return;
    }
    out = static_cast<T>(value.get<double>());
  }

  void boolean(const char* name, bool& out) {
    if (!has(name)) return;
    if (!object_[name].is_boolean()) {
      mistake(name, fmt::format("must be true or false, is {}", shown(object_[name])));
      return;
    }
    out = object_[name].get<bool>();
  }

  template <typename T>
  void list(const char* name, std::vector<T>& out, int64_t low, int64_t high, bool required) {
    if (!has(name)) {
      if (required) mistake(name, "missing; the released config.json has it");
      return;
    }
    const json& value = object_[name];
    if (!value.is_array() || value.size() > 65536) {
      mistake(name, fmt::format("must be a list of integers, is {}", shown(value)));
      return;
    }
    for (size_t i = 0; i < value.size(); ++i) {
      if (!value[i].is_number_integer() || value[i] < low || value[i] > high) {
        mistakes_.push_back(fmt::format("{}{}[{}]: must be an integer from {} to {}, is {}",
                                        prefix_, name, i, low, high, shown(value[i])));
        return;
      }
      out.push_back(static_cast<T>(value[i].get<int64_t>()));
    }
  }

  // A field that may be absent, but whose value, if given, is the only one that the model's maths
  // has.
  void fixed(const char* name, const json& expected) {
    if (has(name) && object_[name] != expected) {
      mistake(name, fmt::format("is {}, but only {} is known here", shown(object_[name]),
                                expected.dump()));
    }
  }

  static std::string shown(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
  }

 private:
  const json& object_;
  const std::string prefix_;
  std::vector<std::string>& mistakes_;
};

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxCount = 1 << 16;
constexpr int64_t kMaxRows = int64_t{1} << 40;
constexpr int64_t kMaxToken = std::numeric_limits<int32_t>::max();

void read_text(Reader& in, ModelConfig& c) {
  in.fixed("num_key_value_heads", 1);
  in.fixed("hidden_act", "silu");
  in.fixed("attention_bias", false);
  in.fixed("scoring_func", "sqrtsoftplus");
  in.fixed("topk_method", "noaux_tc");
  in.fixed("n_shared_experts", 1);
  in.fixed("tie_word_embeddings", false);
  in.integer("vocab_size", c.vocab, 1, kMaxToken);
  in.integer("hidden_size", c.d_hidden, 32, kMaxWidth);
  in.integer("num_hidden_layers", c.n_layers, 1, 4096);
  in.integer("num_attention_heads", c.n_heads, 1, kMaxCount);
  in.integer("head_dim", c.d_head, 32, 65536);
  in.integer("qk_rope_head_dim", c.d_rope, 2, 65536);
  in.integer("q_lora_rank", c.q_lora, 32, kMaxWidth);
  in.integer("o_lora_rank", c.o_lora, 1, kMaxWidth);
  in.integer("o_groups", c.o_groups, 1, kMaxCount);
  in.integer("sliding_window", c.window, 1, 1 << 20);
  in.integer("max_position_embeddings", c.max_positions, 1, int64_t{1} << 30);
  in.number("rms_norm_eps", c.norm_eps, 0, 1, true);
  in.number("rope_theta", c.rope_theta, 1, 1e12, true);
  in.number("compress_rope_theta", c.compress_rope_theta, 1, 1e12, true);
  in.list("compress_ratios", c.compress_ratios, 0, 1024, true);
  in.list("kv_source_layer_ids", c.kv_sources, 0, 4096, true);
  in.list("index_source_layer_ids", c.index_sources, 0, 4096, true);
  in.integer("index_n_heads", c.index_heads, 1, kMaxCount);
  in.integer("index_head_dim", c.d_index, 32, 65536);
  in.integer("index_topk", c.index_top_k, 1, 1 << 20);
  in.optional_integer("candidate_source_layer_id", c.pool_source, 0, 4096);
  if (c.pool_source >= 0) {
    in.integer("candidate_topk_blocks", c.pool_blocks, 1, 1 << 24);
    in.integer("candidate_block_size", c.pool_block, 1, 1 << 16);
  }
  in.integer("hc_mult", c.hc_mult, 1, 16);
  in.integer("hc_sinkhorn_iters", c.hc_sinkhorn_iters, 1, 1000);
  in.number("hc_eps", c.hc_eps, 0, 1, true);
  in.integer("n_routed_experts", c.n_experts, 1, kMaxCount);
  in.integer("num_experts_per_tok", c.n_experts_per_token, 1, kMaxCount);
  in.integer("moe_intermediate_size", c.d_expert, 32, kMaxWidth);
  in.boolean("norm_topk_prob", c.norm_topk);
  in.number("routed_scaling_factor", c.routed_scaling, 0, 1e6, true);
  in.number("swiglu_limit", c.swiglu_limit, 0, 1e6, true);

  EngramConfig& e = c.engram;
  in.list("engram_layer_ids", e.layers, 0, 4096, false);
  if (!e.layers.empty()) {
    in.list("engram_num_embeddings", e.n_rows, 1, kMaxRows, true);
    in.integer("engram_max_ngram_size", e.max_ngram, 2, 16);
    in.integer("engram_n_heads", e.n_heads, 1, 1024);
    in.integer("engram_head_dim", e.d_head, 32, 65536);
    in.integer("engram_vocab_size", e.vocab_base, 2, kMaxRows);
    // R reads engram_pad_id; the released file spells engram_pad_token_id. Both exist in the wild.
    e.pad_token = c.pad_token;
    in.optional_integer("engram_pad_id", e.pad_token, 0, kMaxToken);
    in.optional_integer("engram_pad_token_id", e.pad_token, 0, kMaxToken);
    in.integer("engram_compressed_vocab_size", e.compressed_vocab, 1, kMaxToken);
  }

  DraftConfig& d = c.draft;
  in.optional_integer("num_nextn_predict_layers", d.n_layers, 0, 64);
  if (d.n_layers > 0) {
    in.integer("dspark_block_size", d.block, 1, 256);
    in.integer("dspark_noise_token_id", d.noise_token, 0, kMaxToken);
    in.list("dspark_target_layer_ids", d.target_layers, 0, 4096, true);
    in.integer("dspark_markov_rank", d.markov_rank, 1, kMaxWidth);
    in.integer("dspark_n_routed_experts", d.n_experts, 1, kMaxCount);
    in.integer("dspark_num_experts_per_tok", d.n_experts_per_token, 1, kMaxCount);
  }
}

void read_rope_scaling(const json& text, ModelConfig& c, std::vector<std::string>& mistakes) {
  if (!text.contains("rope_scaling") || text["rope_scaling"].is_null()) return;
  if (!text["rope_scaling"].is_object()) {
    mistakes.emplace_back("text_config.rope_scaling: must be an object or null");
    return;
  }
  const json& object = text["rope_scaling"];
  Reader in(object, "text_config.rope_scaling.", mistakes);
  in.fixed("rope_type", "yarn");
  in.fixed("type", "yarn");
  in.number("factor", c.rope_scaling.factor, 1, 1e6, true);
  in.number("beta_fast", c.rope_scaling.beta_fast, 1e-3, 1e6, false);
  in.number("beta_slow", c.rope_scaling.beta_slow, 1e-3, 1e6, false);
  in.optional_integer("original_max_position_embeddings", c.rope_scaling.original_max_positions, 0,
                      int64_t{1} << 30);
}

void read_vision(const json& root, ModelConfig& c, std::vector<std::string>& mistakes) {
  if (!root.contains("vision_config") || root["vision_config"].is_null()) return;
  if (!root["vision_config"].is_object()) {
    mistakes.emplace_back("vision_config: must be an object or null");
    return;
  }
  const json& object = root["vision_config"];
  Reader in(object, "vision_config.", mistakes);
  VisionConfig& v = c.vision;
  in.integer("num_hidden_layers", v.n_layers, 0, 4096);
  if (v.n_layers == 0) return;
  in.integer("hidden_size", v.d_hidden, 1, kMaxWidth);
  in.integer("num_attention_heads", v.n_heads, 1, kMaxCount);
  in.integer("intermediate_size", v.d_inter, 1, kMaxWidth);
  in.integer("patch_size", v.patch, 1, 4096);
  in.number("rope_theta", v.rope_theta, 1, 1e12, false);
  in.integer("downsample_ratio", v.downsample, 1, 64);
  in.integer("max_image_tokens", v.max_image_tokens, 4, 1 << 24);
  in.integer("min_pixels", v.min_pixels, 0, int64_t{1} << 40);
  in.number("max_wh_ratio", v.max_wh_ratio, 0, 1e9, false);
}

void check_list(const std::vector<int32_t>& list, const char* name, int32_t n_layers,
                std::vector<std::string>& mistakes) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] >= n_layers) {
      mistakes.push_back(
          fmt::format("text_config.{}[{}]: layer {} does not exist, num_hidden_layers is {}", name,
                      i, list[i], n_layers));
    }
    if (i > 0 && list[i] <= list[i - 1])
      mistakes.push_back(fmt::format("text_config.{}: must ascend without repetition", name));
  }
}

bool contains(const std::vector<int32_t>& list, int32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Relations between fields that the maths needs (docs/model.md 6, "Divisibility").
void check_relations(const ModelConfig& c, std::vector<std::string>& mistakes) {
  const auto need = [&](bool ok, std::string text) {
    if (!ok) mistakes.push_back("text_config." + std::move(text));
  };
  const auto multiple_of_32 = [&](int64_t value, const char* what) {
    need(value % 32 == 0,
         fmt::format("{}: is {}, must be a multiple of 32, the block of the number formats", what,
                     value));
  };
  multiple_of_32(c.d_hidden, "hidden_size");
  multiple_of_32(c.d_head, "head_dim");
  multiple_of_32(c.q_lora, "q_lora_rank");
  multiple_of_32(int64_t{c.o_groups} * c.o_lora, "o_groups * o_lora_rank");
  multiple_of_32(c.d_expert, "moe_intermediate_size");
  multiple_of_32(c.d_index, "index_head_dim");
  need(c.d_rope % 2 == 0 && c.d_rope <= c.d_head,
       fmt::format("qk_rope_head_dim: is {}, must be even and at most head_dim ({})", c.d_rope,
                   c.d_head));
  need(c.d_rope <= c.d_index,
       fmt::format("qk_rope_head_dim: is {}, must be at most index_head_dim ({})", c.d_rope,
                   c.d_index));
  need(c.n_heads % c.o_groups == 0,
       fmt::format("o_groups: is {}, must divide num_attention_heads ({})", c.o_groups, c.n_heads));
  if (c.n_heads % c.o_groups == 0)
    multiple_of_32(int64_t{c.n_heads} * c.d_head / c.o_groups,
                   "num_attention_heads * head_dim / o_groups");
  need(c.n_experts_per_token <= c.n_experts,
       fmt::format("num_experts_per_tok: is {}, there are only {} experts", c.n_experts_per_token,
                   c.n_experts));
  need(static_cast<int64_t>(c.compress_ratios.size()) == c.n_layers + c.draft.n_layers,
       fmt::format("compress_ratios: has {} entries, needs num_hidden_layers + "
                   "num_nextn_predict_layers = {}",
                   c.compress_ratios.size(), c.n_layers + c.draft.n_layers));
  check_list(c.kv_sources, "kv_source_layer_ids", c.n_layers, mistakes);
  check_list(c.index_sources, "index_source_layer_ids", c.n_layers, mistakes);
  check_list(c.engram.layers, "engram_layer_ids", c.n_layers, mistakes);
  check_list(c.draft.target_layers, "dspark_target_layer_ids", c.n_layers, mistakes);
  for (const int32_t layer : c.kv_sources) {
    need(contains(c.index_sources, layer),
         fmt::format("index_source_layer_ids: layer {} writes a global cache and must also search",
                     layer));
  }
  if (!c.engram.layers.empty()) {
    const EngramConfig& e = c.engram;
    need(e.n_rows.size() == e.layers.size(),
         fmt::format("engram_num_embeddings: has {} entries for {} layers", e.n_rows.size(),
                     e.layers.size()));
    multiple_of_32(e.d_head, "engram_head_dim");
    need(e.pad_token < c.vocab, "engram_pad_token_id: is no id of the vocabulary");
    need(e.compressed_vocab <= c.vocab, "engram_compressed_vocab_size: is larger than vocab_size");
  }
  if (c.pool_source >= 0) {
    need(contains(c.index_sources, c.pool_source),
         "candidate_source_layer_id: must be one of index_source_layer_ids");
    need(int64_t{c.pool_blocks} * c.pool_block >= c.index_top_k,
         fmt::format(
             "candidate_topk_blocks: {} blocks of {} hold fewer entries than index_topk ({})",
             c.pool_blocks, c.pool_block, c.index_top_k));
  }
  if (c.draft.n_layers > 0) {
    need(!c.draft.target_layers.empty(), "dspark_target_layer_ids: must name at least one layer");
    need(c.draft.n_experts_per_token <= c.draft.n_experts,
         "dspark_num_experts_per_tok: more than there are draft experts");
    need(c.draft.noise_token < c.vocab, "dspark_noise_token_id: is no id of the vocabulary");
  }
}

// Roles by the rule "nearest source at or below" (docs/model.md 1.5).
void derive_roles(ModelConfig& c, std::vector<std::string>& mistakes) {
  int32_t kv = -1;
  int32_t index = -1;
  for (int32_t layer = 0; layer < c.n_layers; ++layer) {
    LayerRole role;
    role.ratio = c.compress_ratios[static_cast<size_t>(layer)];
    role.writes_kv = contains(c.kv_sources, layer);
    role.searches = contains(c.index_sources, layer);
    if (role.writes_kv) kv = layer;
    if (role.searches) index = layer;
    if (role.ratio > 0) {
      role.kv_source = kv;
      role.index_source = index;
      if (kv < 0 || index < 0) {
        mistakes.push_back(
            fmt::format("text_config.compress_ratios[{}]: layer {} reads a global cache, but no "
                        "layer at or below it writes or searches one",
                        layer, layer));
      } else if (c.compress_ratios[static_cast<size_t>(kv)] != role.ratio) {
        mistakes.push_back(
            fmt::format("text_config.compress_ratios[{}]: is {}, but the cache of layer {} that it "
                        "reads has ratio {}",
                        layer, role.ratio, kv, c.compress_ratios[static_cast<size_t>(kv)]));
      } else if (index < kv) {
        mistakes.push_back(
            fmt::format("text_config.index_source_layer_ids: layer {} would use the selection of "
                        "layer {} in the cache of layer {}",
                        layer, index, kv));
      }
    } else if (role.writes_kv || role.searches) {
      mistakes.push_back(
          fmt::format("text_config.compress_ratios[{}]: is 0, but layer {} is listed as a source",
                      layer, layer));
    }
    role.makes_pool = layer == c.pool_source;
    role.uses_pool = c.pool_source >= 0 && role.searches && layer > c.pool_source &&
                     role.kv_source == c.roles[static_cast<size_t>(c.pool_source)].kv_source;
    const auto engram = std::find(c.engram.layers.begin(), c.engram.layers.end(), layer);
    if (engram != c.engram.layers.end())
      role.engram = static_cast<int32_t>(engram - c.engram.layers.begin());
    c.roles.push_back(role);
  }
  // The split: the last source, if it sits in the upper part alone, with no Engram above it.
  c.split_layer = c.n_layers;
  if (!c.kv_sources.empty()) {
    const int32_t last = c.kv_sources.back();
    const bool engram_above = !c.engram.layers.empty() && c.engram.layers.back() >= last;
    if (last > 0 && c.roles[static_cast<size_t>(last)].ratio == 1 && !engram_above)
      c.split_layer = last;
  }
}

}  // namespace

core::Result<ModelConfig> parse_model_config(std::string_view text, std::string_view origin) {
  const json root = json::parse(text.begin(), text.end(), nullptr, false);
  if (root.is_discarded() || !root.is_object()) {
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("{}: is not a JSON object; a model folder needs the released config.json",
                    origin),
        "config.json"};
  }
  std::vector<std::string> mistakes;
  ModelConfig c;
  const json* body = root.contains("text_config") ? &root["text_config"] : &root;
  if (!body->is_object()) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("{}: text_config: must be an object", origin), "text_config"};
  }
  const std::string type = root.contains("model_type") && root["model_type"].is_string()
                               ? root["model_type"].get<std::string>()
                               : "";
  if (type != "deepseek_v41" && type != "deepseek_v41_text") {
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("{}: model_type: is {}, but this program runs deepseek_v41; give the folder of "
                    "a V4.1 checkpoint",
                    origin,
                    root.contains("model_type") ? Reader::shown(root["model_type"]) : "missing"),
        "model_type"};
  }
  Reader top(root, "", mistakes);
  top.optional_integer("bos_token_id", c.bos_token, 0, kMaxToken);
  top.optional_integer("eos_token_id", c.eos_token, 0, kMaxToken);
  top.optional_integer("pad_token_id", c.pad_token, 0, kMaxToken);
  top.optional_integer("image_token_id", c.image_token, 0, kMaxToken);
  if (root.contains("quantization_config") && root["quantization_config"].is_object()) {
    const json& object = root["quantization_config"];
    Reader quant(object, "quantization_config.", mistakes);
    quant.fixed("quant_method", "fp8");
    quant.fixed("scale_fmt", "ue8m0");
    quant.fixed("expert_dtype", "fp4");
    quant.fixed("weight_block_size", json::array({32, 32}));
  }
  Reader in(*body, body == &root ? "" : "text_config.", mistakes);
  if (body != &root) in.fixed("model_type", "deepseek_v41_text");
  read_text(in, c);
  read_rope_scaling(*body, c, mistakes);
  read_vision(root, c, mistakes);
  if (mistakes.empty()) check_relations(c, mistakes);
  if (mistakes.empty()) derive_roles(c, mistakes);
  if (!mistakes.empty()) {
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("{} cannot be used:\n  {}", origin, fmt::join(mistakes, "\n  ")),
                       "config.json"};
  }
  return c;
}

core::Result<ModelConfig> load_model_config(const std::string& path) {
  HADAL_TRY(const std::string text, read_file(path, kMaxConfigBytes));
  return parse_model_config(text, path);
}

}  // namespace hadal::weights
