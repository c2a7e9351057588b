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
#include <algorithm>
#include <cmath>
#include <cstdio>
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
            ops::Replay replay, std::unique_ptr<device::Stream> stream)
      : options_(options),
        loaded_(loaded),
        profile_(profile),
        replay_(replay),
        stream_(std::move(stream)),
        weights_(weigh(loaded.config)) {}

  core::Status run() {
    HADAL_TRY_VOID(prefill());
    HADAL_TRY_VOID(decode(1));
    if (options_.batch > 1) HADAL_TRY_VOID(decode(options_.batch));
    return {};
  }
  uint64_t plan_bytes() const { return plan_bytes_; }
  void report(double read, double peak_flops) {
    for (const Measured& m : measured_) {
      const double limit = std::max(m.bytes / read, 2 * m.macs / peak_flops);
      const double share = limit / m.seconds.median;
      const double tokens = m.tokens / m.seconds.median;
      if (options_.json) {
        fmt::print(
            "{{\"bench\":\"step\",\"workload\":\"{}\",\"device\":\"{}\",\"tokens\":{},\"bytes\":{:."
            "0f}"
            ","
            "\"gflop\":{:.2f},\"median_ms\":{:.3f},\"spread\":{:.4f},\"tokens_s\":{:.3f},"
            "\"read_gb_s\":{:.3f},\"peak_gflop_s\":{:.2f},\"limit_ms\":{:.3f},\"share\":{:.4f},"
            "\"logits\":\"{}\"}}\n",
            m.name,
            loaded_.backend->device().reads_host_memory() ? cpu_model_name()
                                                          : loaded_.backend->device().description(),
            m.tokens, m.bytes, 2e-9 * m.macs, m.seconds.median * 1e3, m.seconds.spread, tokens,
            read / 1e9, peak_flops / 1e9, limit * 1e3, share, m.logits);
      } else {
        fmt::print(
            "{:<10}{:>10.2f} ms{:>8.1f}% spread{:>10.2f} tokens/s   limit {:>9.2f} ms: {:.1f}%\n",
            m.name, m.seconds.median * 1e3, m.seconds.spread * 100, tokens, limit * 1e3,
            share * 100);
      }
      if (options_.layers > 0 && m.bytes > 0) project(m);
      report_ops(m, read, peak_flops);
    }
  }

 private:
  struct Measured {
    std::string name;
    double tokens, bytes, macs;
    Spread seconds;
    std::string logits;       // a digest of the last ones, to compare runs by
    std::vector<OpTime> ops;  // of n_profiled steps; empty without --profile
    size_t n_profiled = 0;
  };

  // Times of one step, the longest first.
  void report_ops(const Measured& m, double read, double peak_flops) const {
    const auto n = static_cast<double>(m.n_profiled);
    double sum = 0;
    for (const OpTime& op : m.ops) sum += op.seconds / n;
    for (const OpTime& op : m.ops) {
      const double ms = op.seconds / n * 1e3, calls = static_cast<double>(op.n_calls) / n;
      const double limit = std::max(op.bytes / read, 2 * op.macs / peak_flops) / n * 1e3;
      if (options_.json) {
        fmt::print(
            "{{\"bench\":\"step\",\"workload\":\"{}\",\"op\":\"{}\",\"calls\":{:.1f},\"mean_ms\":{:"
            ".4f},"
            "\"part\":{:.4f},\"limit_ms\":{:.4f}}}\n",
            m.name, op.name, calls, ms, ms / 1e3 / sum, limit);
      } else {
        fmt::print(
            "  {:<22}{:>6.1f} calls{:>10.3f} ms{:>7.1f}% of the step   limit {:>9.3f} ms{}\n",
            op.name, calls, ms, ms / 1e3 / sum * 100, limit,
            limit > 0 ? fmt::format(": {:.1f}%", limit / ms * 100) : "");
      }
    }
  }

  // Time goes with the bytes that a step touches.
  void project(const Measured& m) const {
    const auto whole = weights::load_model_config(options_.model.model_dir + "/config.json");
    if (!whole) return;
    const auto rows = static_cast<int32_t>(m.tokens);
    const double factor = step_bytes(*whole, weigh(*whole), rows) / m.bytes;
    const double ms = m.seconds.median * factor * 1e3;
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
    std::vector<double> seconds;
    double macs = 0;
    for (int turn = 0; turn < 2; ++turn) {
      profile_.clear();
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
      if (sum > kLongPrefill) break;  // so long a turn needs no other to warm up for it
    }
    HADAL_TRY(std::string digest, digest_of_logits(1));
    measured_.push_back({"prefill", static_cast<double>(n), 0, macs, summarise(seconds), digest,
                         profile_.by_time(), 1});
    return {};
  }

  core::Status decode(int32_t n_seqs) {
    const int32_t end = kDecodePrompt + kWarmSteps + options_.decode;
    HADAL_TRY(Cache cache, make_cache(loaded_, n_seqs, end));
    HADAL_TRY(model::WorkspacePtr workspace,
              workspace_for(kDecodePrompt * n_seqs, n_seqs, end, cache));
    HADAL_TRY_VOID(make_logits(n_seqs));
    for (int32_t s = 0; s < n_seqs; ++s)
      loaded_.model->reset_slot(cache.view, static_cast<uint32_t>(s), *stream_);
    HADAL_TRY(double s, step(cache, *workspace, n_seqs, 0, kDecodePrompt, 0, true));
    std::vector<double> seconds;
    for (int32_t at = kDecodePrompt; at < end; ++at) {
      if (at == kDecodePrompt + kWarmSteps) profile_.clear();
      HADAL_TRY(s, step(cache, *workspace, n_seqs, at, 1, 0, true));
      if (at >= kDecodePrompt + kWarmSteps) seconds.push_back(s);
    }
    const double macs = n_seqs * (weights_.lower_macs + weights_.upper_macs + weights_.head_macs);
    HADAL_TRY(std::string digest, digest_of_logits(n_seqs));
    measured_.push_back({fmt::format("decode_{}", n_seqs), static_cast<double>(n_seqs),
                         step_bytes(loaded_.config, weights_, n_seqs), macs, summarise(seconds),
                         digest, profile_.by_time(), seconds.size()});
    return {};
  }

  const BenchStepOptions& options_;
  LoadedModel& loaded_;
  OpProfile& profile_;
  const ops::Replay replay_;
  std::unique_ptr<device::Stream> stream_;
  const WeightBytes weights_;
  ops::StepBatch batch_;
  device::Buffer logits_;  // on the device, as sampling there needs them
  std::vector<Measured> measured_;
  uint64_t plan_bytes_ = 0;
};

void report_memory(const BenchStepOptions& options, uint64_t peak, uint64_t weights,
                   uint64_t plan) {
  const double bound = 1.1 * static_cast<double>(weights) + static_cast<double>(plan);
  if (options.json) {
    fmt::print(
        "{{\"bench\":\"step\",\"workload\":\"memory\",\"peak_bytes\":{},\"weight_bytes\":{},"
        "\"plan_bytes\":{},\"share\":{:.4f}}}\n",
        peak, weights, plan, static_cast<double>(peak) / bound);
  } else {
    fmt::print(
        "memory    {:>10.1f} MB peak; weights {:.1f} MB, plan {:.1f} MB: {:.1f}% of 1.1 x "
        "weights + plan\n",
        static_cast<double>(peak) / 1e6, static_cast<double>(weights) / 1e6,
        static_cast<double>(plan) / 1e6, static_cast<double>(peak) / bound * 100);
  }
}

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
  StepBench bench(options, loaded, profile, replay, std::move(stream));
  HADAL_TRY_VOID(bench.run());
  if (!device.reads_host_memory()) {
    HADAL_TRY(const ops::Peaks peaks, loaded.backend->measure_peaks());
    bench.report(peaks.read_bytes, peaks.bf16_flops);
    return {};
  }
  report_memory(options, peak_resident_bytes(), loaded.model->weight_bytes(), bench.plan_bytes());
  const int n_threads = options.model.threads > 0
                            ? options.model.threads
                            : static_cast<int>(std::thread::hardware_concurrency());
  cpu::ThreadPool pool({.n_threads = n_threads});
  pool.pin_caller();
  BenchLimits limits(pool);
  std::vector<double> peaks;
  for (int i = 0; i < 5; ++i) peaks.push_back(limits.bf16_peak(cpu::linear_programs(level)));
  std::vector<double> reads;
  for (int i = 0; i < 5; ++i) reads.push_back(limits.read_bandwidth());
  bench.report(summarise(reads).median, summarise(peaks).median);
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
