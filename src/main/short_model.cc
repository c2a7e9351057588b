#include "main/short_model.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "compute/weights/layout.h"
#include "compute/weights/read_file.h"
#include "main/backend_choice.h"

namespace hadal::main {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;

core::Error refused(std::string message) {
  return {core::Code::kInvalidRequest, std::move(message), "layers"};
}

// The layers that stay, ascending.
std::vector<int32_t> kept_layers(int32_t n_all, int32_t split, int32_t n) {
  const int32_t below = std::min(split, n / 2);
  const int32_t above = std::min(n_all - split, n - below);
  std::vector<int32_t> out;
  for (int32_t l = 0; l < n - above; ++l) out.push_back(l);
  for (int32_t l = 0; l < above; ++l) out.push_back(split + l);
  return out;
}

// A list of layer numbers with those that stay, renumbered.
nlohmann::json renumbered(const nlohmann::json& list, const std::vector<int32_t>& kept) {
  nlohmann::json out = nlohmann::json::array();
  for (const nlohmann::json& layer : list) {
    const auto at = std::find(kept.begin(), kept.end(), layer.get<int32_t>());
    if (at != kept.end()) out.push_back(at - kept.begin());
  }
  return out;
}

}  // namespace

core::Result<std::string> shorten_config(std::string_view json, int32_t n_layers) {
  HADAL_TRY(const weights::ModelConfig whole, weights::parse_model_config(json, "config.json"));
  if (n_layers >= whole.n_layers) {
    return refused(
        fmt::format("--layers is {}; the model has {}, ask for fewer", n_layers, whole.n_layers));
  }
  nlohmann::json root = nlohmann::json::parse(json, nullptr, false);
  nlohmann::json& text = root.contains("text_config") ? root["text_config"] : root;
  const std::vector<int32_t> kept = kept_layers(whole.n_layers, whole.split_layer, n_layers);
  nlohmann::json ratios = nlohmann::json::array();
  for (const int32_t layer : kept)
    ratios.push_back(whole.compress_ratios[static_cast<size_t>(layer)]);
  text["num_hidden_layers"] = n_layers;
  text["compress_ratios"] = ratios;
  for (const char* list : {"kv_source_layer_ids", "index_source_layer_ids"})
    text[list] = renumbered(text[list], kept);
  const nlohmann::json pool =
      renumbered(nlohmann::json::array({text.value("candidate_source_layer_id", -1)}), kept);
  if (pool.empty()) {
    text.erase("candidate_source_layer_id");
  } else {
    text["candidate_source_layer_id"] = pool[0];
  }
  text["engram_layer_ids"] = nlohmann::json::array();
  text["engram_num_embeddings"] = nlohmann::json::array();
  text["num_nextn_predict_layers"] = 0;
  text["dspark_target_layer_ids"] = nlohmann::json::array();
  root.erase("vision_config");
  return root.dump();
}

core::Status check_host_holds(const weights::ModelConfig& config, uint64_t free_bytes) {
  uint64_t bytes = 0;
  weights::for_each_tensor(config, [&](const weights::ExpectedTensor& t) {
    if (!t.optional) bytes += t.n_bytes();
  });
  if (2 * bytes <= free_bytes) return {};
  return core::Error{
      core::Code::kOverloaded,
      fmt::format("--layers {}: the weights take {:.1f} GB, and the CPU needs them twice, as made "
                  "and as packed; {:.1f} GB are free: ask for fewer layers",
                  config.n_layers, static_cast<double>(bytes) / 1e9,
                  static_cast<double>(free_bytes) / 1e9),
      "layers"};
}

core::Result<LoadedModel> make_short_model(const ModelFlags& flags, int32_t n_layers, uint64_t seed,
                                           const DeviceUse& use) {
  HADAL_TRY(const std::string json,
            weights::read_file(flags.model_dir + "/config.json", kMaxConfigBytes));
  HADAL_TRY(const std::string cut, shorten_config(json, n_layers));
  LoadedModel out;
  HADAL_TRY(out.config, weights::parse_model_config(cut, "the shortened config.json"));
  HADAL_TRY(out.backend, make_backend(flags));
  model::ModelOptions options;
  options.block_tokens = flags.block_tokens;
  HADAL_TRY_VOID(check_fits(out.config, options, *out.backend, use));
  const device::Device& device = out.backend->device();
  if (device.reads_host_memory()) HADAL_TRY_VOID(check_host_holds(out.config, device.free_bytes()));
  const auto n_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  HADAL_TRY(out.checkpoint, weights::Checkpoint::make_random(out.config, seed, n_threads));
  HADAL_TRY(out.model,
            model::Model::load(*out.checkpoint, out.config, *out.backend, std::move(options)));
  return out;
}

}  // namespace hadal::main
