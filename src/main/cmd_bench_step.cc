// hadal bench step: whole steps of a model, each beside the time that its bytes or its products
// need at least at the rates which the same run measures.
//   decode_1, decode_N   one new token for 1 or N sequences behind a short prompt. Limit: the bytes
//   of
//                        all weights that a step touches over the read bandwidth
//   prefill              one prompt, exact replay unless --replay says otherwise. Limit: the
//                        products of the rows that each layer runs over the bf16 peak
//   memory               peak resident bytes beside 1.1 x weights + plan
// With --layers the model is a shortened one with random weights, and each decode also shows what
// the whole model would take if time goes with bytes: a projection. On an accelerator the backend
// measures its peaks, and memory is not reported.
// With --profile each workload shows its ops, each beside the time that its bytes or its
// multiply-adds need.
// On the host the rates are taken right before and after each step, since they wander while other
// programs run. The buffer that is read for it is no memory of the model's, so that decode runs
// twice: the first time for the memory and for the prefill, the second time for its figures.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/core/sha256.h"
#include "compute/weights/layout.h"
#include "main/backend_choice.h"
#include "main/cmd_bench_limits.h"
#include "main/commands.h"
#include "main/engine_stack.h"
#include "main/loaded_model.h"
#include "main/op_profile.h"
#include "main/short_model.h"
#include "main/step_report.h"

namespace hadal::main {
namespace {

constexpr int32_t kDecodePrompt = 16;  // tokens before the timed decode steps
constexpr int32_t kWarmSteps = 3;
constexpr double kLongPrefill = 10;  // seconds

// Weights by how a step uses them.
struct WeightBytes {
  double dense = 0;   // read whole by every step
  double routed = 0;  // all routed experts
  // Multiply-adds of one row: in a layer below the split and above, and of the head.
  double lower_macs = 0, upper_macs = 0, head_macs = 0;
};

int32_t layer_of(const std::string& name) {
  constexpr std::string_view kPrefix = "layers.";
  return name.starts_with(kPrefix) ? std::atoi(name.c_str() + kPrefix.size()) : -1;
}

WeightBytes weigh(const weights::ModelConfig& config) {
  WeightBytes sum;
  const double share = static_cast<double>(config.n_experts_per_token) / config.n_experts;
  weights::for_each_tensor(config, [&](const weights::ExpectedTensor& t) {
    const bool lookup = t.name == "embed.weight" || t.name.find("engram.embed.") != t.name.npos;
    if (t.optional || lookup) return;
    const bool routed = t.name.find(".ffn.experts.") != t.name.npos;
    (routed ? sum.routed : sum.dense) += static_cast<double>(t.n_bytes());
    if (t.shape.size() != 2 || t.name.ends_with(".scale")) return;
    // Two E2M1 codes a stored byte.
    double macs = static_cast<double>(t.shape[0]) * static_cast<double>(t.shape[1]);
    if (routed) macs *= 2 * share;
    const int32_t layer = layer_of(t.name);
    (layer < 0                    ? sum.head_macs
     : layer < config.split_layer ? sum.lower_macs
                                  : sum.upper_macs) += macs;
  });
  return sum;
}

// Expected bytes of a step of `rows` tokens: the mean number of distinct experts at uniform
// routing.
double step_bytes(const weights::ModelConfig& config, const WeightBytes& weights, int32_t rows) {
  const double one = static_cast<double>(config.n_experts_per_token) / config.n_experts;
  return weights.dense + weights.routed * (1 - std::pow(1 - one, rows));
}

struct Cache {
  std::vector<std::vector<uint32_t>> blocks;  // per sequence
  device::Buffer slabs, slots;
  ops::KvView view;
};

core::Result<Cache> make_cache(const LoadedModel& loaded, int32_t n_seqs, int32_t n_tokens) {
  Cache cache;
  const ops::KvLayout& layout = loaded.model->kv_layout();
  const auto per_seq =
      static_cast<uint32_t>((n_tokens + layout.block_tokens - 1) / layout.block_tokens);
  for (int32_t s = 0; s < n_seqs; ++s) {
    cache.blocks.emplace_back(per_seq);
    std::iota(cache.blocks.back().begin(), cache.blocks.back().end(),
              static_cast<uint32_t>(s) * per_seq);
  }
  const uint32_t n_blocks = per_seq * static_cast<uint32_t>(n_seqs);
  device::Device& device = loaded.backend->device();
  HADAL_TRY(cache.slabs, device.allocate(static_cast<uint64_t>(layout.slab_bytes) * n_blocks,
                                         device::Memory::kDevice));
  const auto slot_bytes = static_cast<uint64_t>(loaded.model->slot_layout().slot_bytes);
  HADAL_TRY(cache.slots,
            device.allocate(slot_bytes * static_cast<uint64_t>(n_seqs), device::Memory::kDevice));
  cache.view = {.slabs = cache.slabs.data(),
                .slots = cache.slots.data(),
                .n_blocks = n_blocks,
                .n_slots = static_cast<uint32_t>(n_seqs)};
  return cache;
}

uint64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

class StepBench {
 public:
  StepBench(const BenchStepOptions& options, LoadedModel& loaded, OpProfile& profile,
            ops::Replay replay, std::unique_ptr<device::Stream> stream,
            std::function<double()> peak)
      : options_(options),
        loaded_(loaded),
        profile_(profile),
        replay_(replay),
        stream_(std::move(stream)),
        peak_(std::move(peak)),
        weights_(weigh(loaded.config)) {}

  core::Status run() {
    HADAL_TRY_VOID(prefill());
    return decodes();
  }
  // Both decodes again, with passes of `limits` between the steps.
  core::Status decode_beside(BenchLimits& limits) {
    measured_.resize(1);  // the prefill stays
    limits_ = &limits;
    return decodes();
  }
  uint64_t plan_bytes() const { return plan_bytes_; }
  void report(const StepRates& rates) const {
    const device::Device& device = loaded_.backend->device();
    const std::string name = device.reads_host_memory() ? cpu_model_name() : device.description();
    for (const StepFigures& m : measured_) {
      report_step(m, rates, name, options_.json);
      if (options_.layers > 0 && m.bytes > 0) project(m);
    }
  }

 private:
  // Time goes with the bytes that a step touches.
  void project(const StepFigures& m) const {
    const auto whole = weights::load_model_config(options_.model.model_dir + "/config.json");
    if (!whole) return;
    const auto rows = static_cast<int32_t>(m.tokens);
    const double factor = step_bytes(*whole, weigh(*whole), rows) / m.bytes;
    const double ms = summarise(m.seconds).median * factor * 1e3;
    if (options_.json) {
      fmt::print(
          "{{\"bench\":\"step\",\"workload\":\"{}\",\"projection\":true,\"from_layers\":{},"
          "\"to_layers\":{},\"projected_ms\":{:.3f}}}\n",
          m.name, loaded_.config.n_layers, whole->n_layers, ms);
    } else {
      fmt::print(
          "{:<10}{:>10.2f} ms a step of {} layers, a projection from {} layers by bytes, not a "
          "measurement\n",
          "", ms, whole->n_layers, loaded_.config.n_layers);
    }
  }

  int32_t token(int32_t seq, int32_t position) const {
    const auto mixed = static_cast<uint32_t>(seq * 7919 + position * 2654435 + 17) * 2654435761U;
    return static_cast<int32_t>((mixed >> 8) % static_cast<uint32_t>(loaded_.config.vocab));
  }

  // One step of `rows` tokens for each sequence from `position`; the seconds it took.
  core::Result<double> step(Cache& cache, model::Workspace& workspace, int32_t n_seqs,
                            int32_t position, int32_t rows, int32_t depth_from, bool logits) {
    std::vector<std::vector<int32_t>> ids(static_cast<size_t>(n_seqs));
    std::vector<ops::SeqChunk> chunks;
    for (int32_t s = 0; s < n_seqs; ++s) {
      auto& mine = ids[static_cast<size_t>(s)];
      for (int32_t i = 0; i < rows; ++i) mine.push_back(token(s, position + i));
      chunks.push_back({.slot = static_cast<uint32_t>(s),
                        .position = position,
                        .ids = mine,
                        .blocks = cache.blocks[static_cast<size_t>(s)],
                        .n_logits = logits ? 1 : 0,
                        .depth_from = depth_from,
                        .replay = replay_});
    }
    const double start = bench_seconds();
    ops::build_step_batch(loaded_.model->batch_shape(), chunks, batch_);
    loaded_.model->forward(batch_, cache.view, workspace, *stream_);
    if (logits) {
      loaded_.model->logits(
          workspace, 0, n_seqs,
          {reinterpret_cast<float*>(logits_.data()), n_seqs, loaded_.config.vocab}, *stream_);
    }
    const std::vector<int32_t> accepted(static_cast<size_t>(n_seqs), rows);
    loaded_.model->commit(batch_, accepted, cache.view, workspace, *stream_);
    HADAL_TRY_VOID(stream_->synchronize());
    return bench_seconds() - start;
  }

  core::Result<model::WorkspacePtr> workspace_for(int32_t rows, int32_t seqs, int32_t context,
                                                  const Cache& cache) {
    const model::StepLimits limits = {
        .max_rows = rows, .max_seqs = seqs, .max_logits = seqs, .max_context = context};
    plan_bytes_ = std::max(plan_bytes_, loaded_.model->plan_workspace(limits).total() +
                                            cache.slabs.size() + cache.slots.size());
    return loaded_.model->make_workspace(limits);
  }

  core::Status make_logits(int32_t n_rows) {
    HADAL_TRY(logits_, loaded_.backend->device().allocate(
                           static_cast<uint64_t>(n_rows * loaded_.config.vocab) * sizeof(float),
                           device::Memory::kDevice));
    return {};
  }

  core::Result<std::string> digest_of_logits(int32_t n_rows) {
    std::vector<float> values(static_cast<size_t>(n_rows) *
                              static_cast<size_t>(loaded_.config.vocab));
    const size_t bytes = values.size() * sizeof(float);
    loaded_.backend->device().copy(*stream_, values.data(), logits_.data(), bytes);
    HADAL_TRY_VOID(stream_->synchronize());
    core::Sha256 digest;
    digest.add(values.data(), bytes);
    return fmt::format("{:02x}", fmt::join(digest.finish(), ""));
  }

  core::Status prefill() {
    const int32_t n = options_.prompt;
    const int32_t chunk = options_.model.prefill_chunk > 0 ? options_.model.prefill_chunk : 512;
    HADAL_TRY(Cache cache, make_cache(loaded_, 1, n));
    HADAL_TRY(model::WorkspacePtr workspace, workspace_for(std::min(chunk, n), 1, n, cache));
    HADAL_TRY_VOID(make_logits(1));
    std::vector<double> seconds, peaks;
    double macs = 0, before = peak_ ? peak_() : 0;
    for (int turn = 0; turn < 2; ++turn) {
      loaded_.model->reset_slot(cache.view, 0, *stream_);
      double sum = 0;
      macs = weights_.head_macs;
      for (int32_t at = 0; at < n; at += chunk) {
        const int32_t rows = std::min(chunk, n - at);
        HADAL_TRY(const double s, step(cache, *workspace, 1, at, rows, n - 1, at + rows == n));
        sum += s;
        const double lower_layers = std::max(1, loaded_.config.split_layer);
        const double upper_layers =
            std::max(1, loaded_.config.n_layers - loaded_.config.split_layer);
        for (int32_t l = 0; l < loaded_.config.n_layers; ++l) {
          macs += batch_.n_full[static_cast<size_t>(l)] *
                  (l < loaded_.config.split_layer ? weights_.lower_macs / lower_layers
                                                  : weights_.upper_macs / upper_layers);
        }
      }
      seconds.push_back(sum);
      const double after = peak_ ? peak_() : 0;
      if (peak_) peaks.push_back((before + after) / 2);
      before = after;
      if (sum > kLongPrefill) break;  // so long a turn needs no other to warm up for it
    }
    HADAL_TRY(std::string digest, digest_of_logits(1));
    measured_.push_back({.name = "prefill",
                         .tokens = static_cast<double>(n),
                         .macs = macs,
                         .seconds = seconds,
                         .peaks = peaks,
                         .logits = digest,
                         .ops = profile_.by_time()});
    return {};
  }

  core::Status decodes() {
    HADAL_TRY_VOID(decode(1));
    if (options_.batch > 1) HADAL_TRY_VOID(decode(options_.batch));
    return {};
  }

  double read_now() const { return limits_ != nullptr ? limits_->read_bandwidth() : 0; }

  core::Status decode(int32_t n_seqs) {
    const int32_t end = kDecodePrompt + kWarmSteps + options_.decode;
    HADAL_TRY(Cache cache, make_cache(loaded_, n_seqs, end));
    HADAL_TRY(model::WorkspacePtr workspace,
              workspace_for(kDecodePrompt * n_seqs, n_seqs, end, cache));
    HADAL_TRY_VOID(make_logits(n_seqs));
    for (int32_t s = 0; s < n_seqs; ++s)
      loaded_.model->reset_slot(cache.view, static_cast<uint32_t>(s), *stream_);
    HADAL_TRY(double s, step(cache, *workspace, n_seqs, 0, kDecodePrompt, 0, true));
    std::vector<double> seconds, reads;
    double before = read_now();
    for (int32_t at = kDecodePrompt; at < end; ++at) {
      if (at == kDecodePrompt + kWarmSteps) profile_.clear();
      HADAL_TRY(s, step(cache, *workspace, n_seqs, at, 1, 0, true));
      const double after = read_now();
      if (at >= kDecodePrompt + kWarmSteps) {
        seconds.push_back(s);
        if (limits_ != nullptr) reads.push_back((before + after) / 2);
      }
      before = after;
    }
    const double macs = n_seqs * (weights_.lower_macs + weights_.upper_macs + weights_.head_macs);
    HADAL_TRY(std::string digest, digest_of_logits(n_seqs));
    measured_.push_back({.name = fmt::format("decode_{}", n_seqs),
                         .tokens = static_cast<double>(n_seqs),
                         .bytes = step_bytes(loaded_.config, weights_, n_seqs),
                         .macs = macs,
                         .seconds = seconds,
                         .reads = reads,
                         .logits = digest,
                         .ops = profile_.by_time()});
    return {};
  }

  const BenchStepOptions& options_;
  LoadedModel& loaded_;
  OpProfile& profile_;
  const ops::Replay replay_;
  std::unique_ptr<device::Stream> stream_;
  const std::function<double()> peak_;  // flop a second, now; empty on an accelerator
  BenchLimits* limits_ = nullptr;
  const WeightBytes weights_;
  ops::StepBatch batch_;
  device::Buffer logits_;  // on the device, as sampling there needs them
  std::vector<StepFigures> measured_;
  uint64_t plan_bytes_ = 0;
};

core::Status bench_step(const BenchStepOptions& options) {
  HADAL_TRY(const cpu::CpuLevel level, cpu::choose_level(options.model.cpu_level));
  HADAL_TRY(const ops::Replay replay, parse_replay(options.model.replay));
  const int32_t chunk = options.model.prefill_chunk > 0 ? options.model.prefill_chunk : 512;
  const int32_t rows = std::max(std::min(chunk, options.prompt), options.batch * kDecodePrompt);
  const DeviceUse use = {
      .limits = {
          .max_rows = rows,
          .max_seqs = options.batch,
          .max_logits = options.batch,
          .max_context = std::max(options.prompt, kDecodePrompt + kWarmSteps + options.decode)}};
  OpProfile profile;
  LoadedModel loaded;
  if (options.layers > 0) {
    HADAL_TRY(loaded, make_short_model(options.model, options.layers, options.seed, use));
  } else {
    HADAL_TRY(std::unique_ptr<ops::Backend> backend, make_backend(options.model));
    if (options.profile && !backend->device().reads_host_memory()) {
      return core::Error{core::Code::kInvalidRequest,
                         "--profile times ops on the host; an accelerator's ops outlast their "
                         "calls. Leave it out, or give --backend cpu",
                         "profile"};
    }
    if (options.profile) backend = profiled(std::move(backend), profile);
    HADAL_TRY(loaded, load_model(options.model, use, std::move(backend)));
  }
  const int64_t positions = loaded.config.max_positions;
  if (options.prompt > positions || kDecodePrompt + kWarmSteps + options.decode > positions) {
    return core::Error{
        core::Code::kInvalidRequest,
        fmt::format("--prompt {} and --decode {} do not fit the model's {} positions "
                    "(max_position_embeddings); give less",
                    options.prompt, options.decode, positions)};
  }
  device::Device& device = loaded.backend->device();
  if (!options.json)
    fmt::print("{}, {} layers, weights {:.1f} GB\n", device.description(), loaded.config.n_layers,
               static_cast<double>(loaded.model->weight_bytes()) / 1e9);
  HADAL_TRY(std::unique_ptr<device::Stream> stream, device.make_stream());
  if (!device.reads_host_memory()) {
    StepBench bench(options, loaded, profile, replay, std::move(stream), {});
    HADAL_TRY_VOID(bench.run());
    HADAL_TRY(const ops::Peaks peaks, loaded.backend->measure_peaks());
    bench.report({.read = peaks.read_bytes, .flops = peaks.bf16_flops});
    return {};
  }
  const int n_threads = options.model.threads > 0
                            ? options.model.threads
                            : static_cast<int>(std::thread::hardware_concurrency());
  cpu::ThreadPool pool({.n_threads = n_threads});
  pool.pin_caller();  // to where the model's pool wants its caller too
  std::vector<double> peaks;
  const auto peak = [&] {
    peaks.push_back(bf16_peak(pool, cpu::linear_programs(level)));
    return peaks.back();
  };
  StepBench bench(options, loaded, profile, replay, std::move(stream), peak);
  HADAL_TRY_VOID(bench.run());
  report_memory(peak_resident_bytes(), loaded.model->weight_bytes(), bench.plan_bytes(),
                options.json);
  BenchLimits limits(pool);
  HADAL_TRY_VOID(bench.decode_beside(limits));
  peak();
  bench.report({.read = limits.read_bandwidth(), .flops = summarise(peaks).median});
  return {};
}

}  // namespace

int cmd_bench_step(const BenchStepOptions& asked) {
  BenchStepOptions options = asked;
  if (options.model.model_dir.empty()) options.model.model_dir = default_model_dir();
  const core::Status done = bench_step(options);
  if (done) return 0;
  fmt::print(stderr, "hadal bench step: {}\n", done.error().message);
  return 1;
}

}  // namespace hadal::main
