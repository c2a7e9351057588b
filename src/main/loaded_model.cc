#include "main/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/tokenizer/engram_map.h"
#include "base/tokenizer/tokenizer.h"
#include "compute/model/model_plan.h"
#include "compute/weights/audit.h"
#include "compute/weights/read_file.h"
#include "main/backend_choice.h"
#include "main/engine_stack.h"
#include "main/loading_progress.h"

namespace hadal::main {
namespace {

constexpr size_t kMaxIdFile = 1u << 30;

core::Error refused(std::string message, std::string param = {}) {
  return {core::Code::kInvalidRequest, std::move(message), std::move(param)};
}

}  // namespace

core::Result<ops::Replay> parse_replay(const std::string& name) {
  if (name == "exact") return ops::Replay::kExact;
  if (name == "bounded") return ops::Replay::kBounded;
  return refused(fmt::format("--replay is {}; it can be exact or bounded", name), "replay");
}

core::Result<std::vector<int32_t>> read_id_list(const std::string& path) {
  HADAL_TRY(const std::string text, weights::read_file(path, kMaxIdFile));
  const nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_array()) return refused(fmt::format("{}: is no JSON array of token ids", path));
  std::vector<int32_t> ids;
  ids.reserve(root.size());
  for (const nlohmann::json& id : root) {
    const bool fits = id.is_number_integer() && id.get<int64_t>() >= 0 &&
                      id.get<int64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) {
      return refused(fmt::format("{}: element {} is {}, not a token id", path, ids.size(),
                                 id.dump().substr(0, 40)));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

core::Result<std::vector<int32_t>> load_token_map(const std::string& model_dir,
                                                  const weights::ModelConfig& config) {
  if (config.engram.layers.empty()) return std::vector<int32_t>();
  const std::string file = model_dir + "/engram_token_map.json";
  std::vector<int32_t> map;
  std::string origin = file;
  if (std::filesystem::exists(file)) {
    HADAL_TRY(map, read_id_list(file));
  } else {
    origin = model_dir + "/tokenizer.json";
    HADAL_TRY(const tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::load(origin));
    map = tokenizer::make_engram_map(tokenizer).map;
  }
  const auto distinct = static_cast<int64_t>(std::set<int32_t>(map.begin(), map.end()).size());
  if (distinct != config.engram.compressed_vocab) {
    return refused(fmt::format(
        "{}: folds to {} ids, config.json says engram_compressed_vocab_size {}; the tokenizer does "
        "not belong to these weights",
        origin, distinct, config.engram.compressed_vocab));
  }
  // Ids that no token has (the vocabulary may be padded) look up the pad token's n-grams.
  if (static_cast<int64_t>(map.size()) < config.vocab)
    map.resize(static_cast<size_t>(config.vocab),
               map.at(static_cast<size_t>(config.engram.pad_token)));
  return map;
}

core::Status check_fits(const weights::ModelConfig& config, const model::ModelOptions& options,
                        ops::Backend& backend, const DeviceUse& use) {
  device::Device& device = backend.device();
  if (device.reads_host_memory()) return {};
  for (const int32_t layer : config.kv_sources) {
    const int32_t ratio = config.roles[static_cast<size_t>(layer)].ratio;
    if (options.block_tokens % ratio != 0) return {};  // Model::load says so
  }
  const model::ModelPlan plan = model::plan_model(config, options, backend.ops(), use.limits);
  const uint64_t blocks = use.n_blocks * static_cast<uint64_t>(plan.slab_bytes);
  const uint64_t slots = use.n_slots * static_cast<uint64_t>(plan.slot_bytes);
  const uint64_t logits = use.logits ? static_cast<uint64_t>(use.limits.max_logits) *
                                           static_cast<uint64_t>(config.vocab) * sizeof(float)
                                     : 0;
  const uint64_t total = plan.weight_bytes + blocks + slots + plan.workspace.total() + logits;
  const uint64_t free = device.free_bytes();
  if (total <= free) return {};
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  return core::Error{
      core::Code::kOverloaded,
      fmt::format("the model does not fit on {}: it needs {:.2f} GB, {:.2f} GB are free\n"
                  "planned: weights {:.2f} GB; cache {:.2f} GB ({} blocks of {} tokens); {} "
                  "sequences' windows {:.2f} GB; activations {:.2f} GB ({} rows in a step); logits "
                  "{:.2f} GB\n{}",
                  device.description(), gb(total), gb(free), gb(plan.weight_bytes), gb(blocks),
                  use.n_blocks, options.block_tokens, use.n_slots, gb(slots),
                  gb(plan.workspace.total()), use.limits.max_rows, gb(logits),
                  plan.weight_bytes > free
                      ? "the weights alone are too large: a larger GPU, or --backend cpu"
                      : "lower --max-context, --kv.device-blocks, --sched.max-running or "
                        "--sched.step-tokens")};
}

core::Result<LoadedModel> load_model(const ModelFlags& flags, const DeviceUse& use,
                                     std::unique_ptr<ops::Backend> backend) {
  const std::string dir = flags.model_dir.empty() ? default_model_dir() : flags.model_dir;
  if (dir.empty()) {
    return core::Error{
        core::Code::kNotFound,
        "no model: give --model DIR (the bundled models/demo was not found beside this program)",
        "model"};
  }
  LoadedModel out;
  HADAL_TRY(out.config, weights::load_model_config(dir + "/config.json"));
  out.backend = std::move(backend);
  if (out.backend == nullptr) {
    HADAL_TRY(out.backend, make_backend(flags));
  }
  model::ModelOptions options;
  options.block_tokens = flags.block_tokens;
  HADAL_TRY_VOID(check_fits(out.config, options, *out.backend, use));
  HADAL_TRY(out.checkpoint, weights::Checkpoint::open(dir));
  const core::SystemClock clock;
  LoadingProgress progress(clock, flags.log_loading ? loading_log() : loading_line());
  weights::AuditOptions audit{.n_threads = flags.threads};
  audit.on_progress = [&](uint64_t done, uint64_t of) { progress.tell("checked", done, of); };
  HADAL_TRY_VOID(weights::audit_checkpoint(*out.checkpoint, out.config, audit));
  HADAL_TRY(options.token_map, load_token_map(dir, out.config));
  options.on_progress = [&](uint64_t done, uint64_t of) { progress.tell("packed", done, of); };
  HADAL_TRY(out.model,
            model::Model::load(*out.checkpoint, out.config, *out.backend, std::move(options)));
  return out;
}

}  // namespace hadal::main
