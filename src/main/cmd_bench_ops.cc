// hadal bench ops: products of rows with packed weights, each beside the limit that this machine
// shows in the same run. Workloads:
//   fp4_row, fp8_row, bf16_row   one row; weights at least four times the last cache
//   moe_6x1                      six experts of one row each, gate/up then down, out of many
//   experts fp4_rows8, fp8_rows8         eight rows, weights out of memory fp4_prefill,
//   fp8_prefill, bf16_prefill   512 rows
// Row workloads read all their weights once a turn, with other activations each turn. The read
// bandwidth is measured before and after each turn, and the share is the median over turns.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cpu/linear.h"
#include "main/backend_choice.h"
#include "main/bench_device_ops.h"
#include "main/cmd_bench_limits.h"
#include "main/commands.h"

namespace hadal::main {
namespace {

using cpu::LinearCall;
using cpu::PackedLinear;
using cpu::RowGroup;
using cpu::WeightFormat;

// xorshift: fills hundreds of megabytes, so it must be cheap.
struct Random {
  uint64_t state;
  uint32_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 24);
  }
};

// A random source matrix in a format's bytes, with sane magnitudes.
struct Source {
  std::vector<std::byte> weight, scale;
  cpu::WeightSource view;
  Source(WeightFormat format, int64_t n, int64_t k, Random& random)
      : weight(static_cast<size_t>(cpu::source_weight_bytes(format, n, k))),
        scale(static_cast<size_t>(cpu::source_scale_bytes(format, n, k))) {
    for (size_t i = 0; i < weight.size(); ++i) {
      const uint32_t r = random.next();
      // bf16: the high byte is a sign and an exponent near 2^-3; e4m3: no NaN.
      uint32_t b = r & 255;
      if (format == WeightFormat::kBF16 && i % 2 == 1) b = 0x3D | (r & 128) | (r >> 8 & 1);
      if (format == WeightFormat::kFP8 && (b & 127) == 127) b = 0x38;
      weight[i] = static_cast<std::byte>(b);
    }
    for (std::byte& b : scale) b = static_cast<std::byte>(118 + random.next() % 6);
    view = {format, weight.data(), scale.data(), n, k};
  }
};

std::vector<uint16_t> random_rows(int64_t n, int64_t k, Random& random) {
  std::vector<uint16_t> x(static_cast<size_t>(n * k));
  for (uint16_t& v : x) v = static_cast<uint16_t>(0x3E00 | (random.next() & 0x81FF));
  return x;
}

class OpsBench {
 public:
  OpsBench(const BenchOpsOptions& options, cpu::CpuLevel level)
      : json_(options.json),
        level_(level),
        pool_({.n_threads = options.threads,
               .scratch_bytes = std::max<int64_t>(cpu::linear_scratch_bytes(), 1 << 20)}),
        kernels_(cpu::linear_kernels(level)),
        limits_(pool_) {
    pool_.pin_caller();
    if (!json_) {
      fmt::print("{}, level {}, {} threads, last cache {} MiB\n", cpu_model_name(),
                 cpu::level_name(level), options.threads, last_cache_bytes() >> 20);
      fmt::print("{:<14}{:>20}{:>10}{:>8}{:>9}{:>10}{:>21}{:>8}\n", "workload", "rows x n x k",
                 "ms", "spread", "GB/s", "GFLOP/s", "limit, same run", "share");
    }
  }

  // True if every result of the checks was the reference's.
  bool run() {
    rows("fp4_row", WeightFormat::kFP4, 4608, 5120, 1);
    rows("fp8_row", WeightFormat::kFP8, 5120, 8192, 1);
    rows("bf16_row", WeightFormat::kBF16, 16160, 5120, 1);
    moe();
    rows("fp4_rows8", WeightFormat::kFP4, 4608, 5120, 8);
    rows("fp8_rows8", WeightFormat::kFP8, 5120, 8192, 8);
    prefill("fp4_prefill", WeightFormat::kFP4, 4608, 5120);
    prefill("fp8_prefill", WeightFormat::kFP8, 5120, 8192);
    prefill("bf16_prefill", WeightFormat::kBF16, 4096, 5120);
    return right_;
  }

 private:
  PackedLinear pack(const Source& source, cpu::PackOrder order, int64_t n_groups) {
    const int64_t pieces[] = {source.view.n};
    PackedLinear w(source.view.format, order, n_groups, pieces, source.view.k);
    for (int64_t g = 0; g < n_groups; ++g) w.pack(pool_, g, 0, source.view, false);
    return w;
  }

  int64_t groups_for(WeightFormat format, int64_t n, int64_t k) const {
    return 4 * last_cache_bytes() / cpu::source_weight_bytes(format, n, k) + 1;
  }

  // The first and last panels of the call's first group, made of `source`, against the portable
  // kernel, bit for bit.
  void check(const LinearCall& call, const Source& source, std::string_view name) {
    const cpu::LinearKernels& portable = cpu::linear_kernels(cpu::CpuLevel::kBase);
    const PackedLinear portable_weights = pack(source, portable.order, 1);
    LinearCall one = call;
    one.groups = call.groups.first(1);
    HADAL_CHECK(one.groups[0].group == 0);
    const int64_t panels = call.weights->group_panels();
    const auto bytes = static_cast<size_t>(call.groups[0].count * call.y_stride * 2);
    std::vector<uint16_t> mine(bytes / 2), reference(bytes / 2);
    for (const bool base : {false, true}) {
      one.y = base ? reference.data() : mine.data();
      const cpu::LinearKernels& kernels = base ? portable : kernels_;
      if (base) one.weights = &portable_weights;
      pool_.run([&](const cpu::Lane& lane) {
        if (lane.index != 0) return;
        cpu::linear(kernels, one, {0, std::min<int64_t>(panels, 4)}, lane.scratch);
        cpu::linear(kernels, one, {std::max<int64_t>(0, panels - 2), panels}, lane.scratch);
      });
    }
    if (std::memcmp(mine.data(), reference.data(), bytes) != 0) {
      fmt::print(stderr, "hadal bench ops: {}: the result is not that of the portable kernel\n",
                 name);
      right_ = false;
    }
  }

  double peak() { return bf16_peak(pool_, cpu::linear_programs(level_)); }

  // Times `turn(i)`; each turn touches `bytes` and does `flops`. Before and after each turn comes a
  // pass of the limit that applies, since a shared machine changes its speed by the second.
  template <typename Turn>
  void report(std::string_view name, int64_t rows, int64_t n, int64_t k, int n_turns, double bytes,
              double flops, bool by_bandwidth, const Turn& turn) {
    turn(0);
    std::vector<double> seconds, limits, share;
    double before = by_bandwidth ? limits_.read_bandwidth() : peak();
    for (int i = 0; i < n_turns; ++i) {
      const double start = bench_seconds();
      turn(i + 1);
      seconds.push_back(bench_seconds() - start);
      const double after = by_bandwidth ? limits_.read_bandwidth() : peak();
      limits.push_back((before + after) / 2);
      share.push_back((by_bandwidth ? bytes : flops) / seconds.back() / limits.back());
      before = after;
    }
    const Spread time = summarise(seconds);
    const double gb_s = bytes / time.median / 1e9, gflop_s = flops / time.median / 1e9;
    const double limit = summarise(limits).median / 1e9, of_limit = summarise(share).median;
    const std::string_view unit = by_bandwidth ? "GB/s read" : "GFLOP/s";
    if (json_) {
      fmt::print(
          "{{\"bench\":\"ops\",\"workload\":\"{}\",\"cpu\":\"{}\",\"level\":\"{}\",\"threads\":{},"
          "\"rows\":{},\"n\":{},\"k\":{},\"bytes\":{:.0f},\"turns\":{},\"median_us\":{:.1f},"
          "\"spread\":{:.4f},\"gb_s\":{:.3f},\"gflop_s\":{:.2f},\"limit\":{:.3f},"
          "\"limit_unit\":\"{}\",\"share\":{:.4f},\"checked\":{}}}\n",
          name, cpu_model_name(), cpu::level_name(level_), pool_.n_threads(), rows, n, k, bytes,
          n_turns, time.median * 1e6, time.spread, gb_s, gflop_s, limit, unit, of_limit, right_);
    } else {
      const std::string shape = fmt::format("{} x {} x {}", rows, n, k);
      fmt::print("{:<14}{:>20}{:>10.3f}{:>7.1f}%{:>9.2f}{:>10.1f}{:>10.2f} {:<10}{:>7.1f}%\n", name,
                 shape, time.median * 1e3, time.spread * 100, gb_s, gflop_s, limit, unit,
                 of_limit * 100);
    }
    std::fflush(stdout);
  }

  void rows(std::string_view name, WeightFormat format, int64_t n, int64_t k, int32_t n_rows) {
    Random random{42};
    const int64_t n_groups = groups_for(format, n, k);
    const Source source(format, n, k, random);
    const PackedLinear w = pack(source, kernels_.order, n_groups);
    const std::vector<uint16_t> x = random_rows(16 + n_rows, k, random);
    std::vector<uint16_t> y(static_cast<size_t>(n_rows * n));
    std::vector<RowGroup> groups;
    for (int32_t g = 0; g < n_groups; ++g) groups.push_back({g, 0, n_rows});
    LinearCall call{.weights = &w,
                    .x = x.data(),
                    .x_stride = k,
                    .y = y.data(),
                    .y_stride = n,
                    .groups = groups};
    check(call, source, name);
    const auto bytes = static_cast<double>(w.bytes());
    const double flops = 2.0 * static_cast<double>(n_groups * n * k * n_rows);
    report(name, n_rows, n * n_groups, k, n_rows == 1 ? 9 : 5, bytes, flops, true, [&](int turn) {
      call.x = x.data() + turn % 16 * k;
      cpu::linear(kernels_, call, pool_);
    });
  }

  // One decoded token's routed experts of a layer, turn after turn with other experts.
  void moe() {
    Random random{43};
    constexpr int64_t kHidden = 5120, kInner = 2304;
    const auto one = cpu::source_weight_bytes(WeightFormat::kFP4, 3 * kInner, kHidden);
    const int64_t n_experts = (4 * last_cache_bytes() / one + 7) / 6 * 6;
    const Source up_source(WeightFormat::kFP4, 2 * kInner, kHidden, random);
    const Source down_source(WeightFormat::kFP4, kHidden, kInner, random);
    const PackedLinear up = pack(up_source, kernels_.order, n_experts);
    const PackedLinear down = pack(down_source, kernels_.order, n_experts);
    const std::vector<uint16_t> x = random_rows(16, kHidden, random);
    const std::vector<uint16_t> inner = random_rows(6, kInner, random);
    std::vector<uint16_t> gate(6 * 2 * kInner), y(6 * kHidden);
    const std::vector<int32_t> same(6, 0);
    std::vector<RowGroup> groups(6);
    LinearCall a{.weights = &up,
                 .x = x.data(),
                 .x_stride = kHidden,
                 .x_index = same.data(),
                 .y = gate.data(),
                 .y_stride = 2 * kInner,
                 .groups = groups};
    const LinearCall b{.weights = &down,
                       .x = inner.data(),
                       .x_stride = kInner,
                       .y = y.data(),
                       .y_stride = kHidden,
                       .groups = groups};
    for (int32_t i = 0; i < 6; ++i) groups[static_cast<size_t>(i)] = {i, i, 1};
    check(b, down_source, "moe_6x1");
    const int64_t layers = n_experts / 6;
    const auto bytes = static_cast<double>(up.bytes() + down.bytes());
    const double flops = 2.0 * static_cast<double>(n_experts * 3 * kInner * kHidden);
    report("moe_6x1", 1, 3 * kInner * n_experts, kHidden, 9, bytes, flops, true, [&](int turn) {
      a.x = x.data() + turn % 16 * kHidden;
      for (int64_t layer = 0; layer < layers; ++layer) {
        for (int32_t i = 0; i < 6; ++i) {
          groups[static_cast<size_t>(i)] = {
              static_cast<int32_t>((layer * 5 + turn) % layers * 6 + i), i, 1};
        }
        pool_.run([&](const cpu::Lane& lane) {
          cpu::linear(kernels_, a, lane);
          lane.barrier();
          cpu::linear(kernels_, b, lane);
        });
      }
    });
  }

  void prefill(std::string_view name, WeightFormat format, int64_t n, int64_t k) {
    Random random{44};
    constexpr int32_t kRows = 512;
    const Source source(format, n, k, random);
    const PackedLinear w = pack(source, kernels_.order, 1);
    const std::vector<uint16_t> x = random_rows(kRows + 16, k, random);
    std::vector<uint16_t> y(static_cast<size_t>(kRows * n));
    const RowGroup all{0, 0, kRows};
    LinearCall call{.weights = &w,
                    .x = x.data(),
                    .x_stride = k,
                    .y = y.data(),
                    .y_stride = n,
                    .groups = {&all, 1}};
    check(call, source, name);
    report(name, kRows, n, k, 7, static_cast<double>(w.bytes()),
           2.0 * static_cast<double>(n * k * kRows), false, [&](int turn) {
             call.x = x.data() + turn % 16 * k;
             cpu::linear(kernels_, call, pool_);
           });
  }

  const bool json_;
  const cpu::CpuLevel level_;
  cpu::ThreadPool pool_;
  const cpu::LinearKernels& kernels_;
  BenchLimits limits_;
  bool right_ = true;
};

}  // namespace

int cmd_bench_ops(const BenchOpsOptions& options) {
  if (options.backend != "cpu") {
    ModelFlags flags;
    flags.backend = options.backend;
    auto backend = make_backend(flags);
    if (!backend) {
      fmt::print(stderr, "hadal bench ops: {}\n", backend.error().message);
      return 2;
    }
    return bench_device_ops(**backend, options.json);
  }
  const auto level = cpu::choose_level(options.cpu_level);
  if (!level) {
    fmt::print(stderr, "hadal bench ops: {}\n", level.error().message);
    return 2;
  }
  return OpsBench(options, *level).run() ? 0 : 1;
}

}  // namespace hadal::main
