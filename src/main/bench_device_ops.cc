// hadal bench ops --backend cuda: every op that a step spends time in, at 1, 8, 64, 256 and 8,192
// rows. Up to 256 rows each row is a sequence of its own (decode), 8,192 are a chunk of one prompt.
// Weights are rotated over more memory than the caches hold; activations are as warm as in a step.
// A recording of many calls is played and its time divided.
#include "main/bench_device_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "base/core/check.h"
#include "main/bench_device_inputs.h"
#include "main/cmd_bench_limits.h"

namespace hadal::main {
namespace {

constexpr int64_t kHidden = 5120, kInter = 2304, kExperts = 384, kVocab = 129280, kLora = 1280;
constexpr int64_t kHeads = 64, kHead = 512, kIndexHeads = 32, kIndex = 128, kGroups = 8;
constexpr int64_t kOutLora = 1024, kGram = 6144;
constexpr int32_t kTopK = 6, kStreams = 4, kListed = 512, kWindow = 128, kRope = 64;
constexpr int32_t kContext = 131072, kPrefill = 8192, kMaxDecode = 256;
constexpr int32_t kRows[] = {1, 8, 64, kMaxDecode, kPrefill};

// Bytes and products of one call.
struct Work {
  double bytes = 0, flops = 0;
};

class DeviceBench {
 public:
  DeviceBench(ops::Backend& backend, const ops::Peaks& peaks, bool json)
      : in_(backend), backend_(backend), peaks_(peaks), json_(json) {
    ops::Ops::Limits limits{.max_rows = kPrefill,
                            .max_end = kContext,
                            .top_k = kTopK,
                            .widest_k = kHeads * kHead,  // of wo_a
                            .d_inter = kInter,
                            .d_hidden = kHidden,
                            .d_head = kHead,
                            .d_index = kIndex,
                            .n_groups = kGroups};
    const uint64_t bytes = backend.ops().workspace_bytes(limits);
    scratch_ = {in_.room<std::byte>(static_cast<int64_t>(bytes)), bytes};
    if (!json) {
      fmt::print("{}; reads {:.2f} TB/s, bf16 {:.0f} TFLOP/s\n", backend.device().description(),
                 peaks.read_bytes / 1e12, peaks.bf16_flops / 1e12);
      fmt::print("{:<30}{:>6}{:>12}{:>9}{:>11}{:>11}{:>12}{:>8}\n", "op", "rows", "us", "spread",
                 "GB/s", "TFLOP/s", "limit us", "share");
    }
  }

  void run() {
    boundary();
    product("linear q_kv fp8 1792x5120", ops::WeightFormat::kFp8Tile, 1792, kHidden, false);
    product("linear compress bf16 1024x5120", ops::WeightFormat::kBf16, 1024, kHidden, true);
    product("linear gate bf16 384x5120", ops::WeightFormat::kBf16, kExperts, kHidden, true);
    product("linear engram fp8 25600x6144", ops::WeightFormat::kFp8Tile, 25600, kGram, false);
    product("head bf16 129280x5120", ops::WeightFormat::kBf16, kVocab, kHidden, true);
    query();
    out_proj();
    for (const int32_t rows : kRows) {
      latent_write(rows);
      route(rows);
      final_norm(rows);
      attention(rows);
      experts(rows);
      if (rows <= kMaxDecode) sampler(rows);
    }
  }

 private:
  // Times `call(i)`; calls with i a multiple of `n_copies` apart use the same weights.
  template <class Call>
  void report(std::string_view name, int64_t rows, const Work& work, int n_copies, bool recorded,
              const Call& call) {
    constexpr int kTurns = 7;
    const double limit = std::max(work.bytes / peaks_.read_bytes, work.flops / peaks_.bf16_flops);
    // About 10 ms a turn at the limit, but not more calls than a recording likes.
    int n = static_cast<int>(std::clamp(10e-3 / std::max(limit, 1e-6), 3.0, 400.0));
    n = (n + n_copies - 1) / n_copies * n_copies;
    const auto all = [&] {
      for (int i = 0; i < n; ++i) call(i);
    };
    std::unique_ptr<device::Recording> recording;
    if (recorded) {
      auto made = backend_.device().record(in_.stream(), all);
      HADAL_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
      recording = std::move(made).value();
    }
    std::vector<double> seconds;
    for (int turn = 0; turn <= kTurns; ++turn) {
      const double start = bench_seconds();
      if (recording != nullptr) {
        recording->play(in_.stream());
      } else {
        all();
      }
      in_.sync();
      if (turn > 0) seconds.push_back((bench_seconds() - start) / n);
    }
    const Spread time = summarise(seconds);
    const double gb_s = work.bytes / time.median / 1e9, tflop_s = work.flops / time.median / 1e12;
    if (json_) {
      fmt::print(
          "{{\"bench\":\"device_ops\",\"op\":\"{}\",\"device\":\"{}\",\"rows\":{},\"calls\":{},"
          "\"us\":{:.3f},\"spread\":{:.4f},\"bytes\":{:.0f},\"flops\":{:.0f},"
          "\"peak_read_gb_s\":{:.1f},\"peak_bf16_tflop_s\":{:.1f},\"limit_us\":{:.3f},"
          "\"share\":{:.4f}}}\n",
          name, backend_.device().description(), rows, n, time.median * 1e6, time.spread,
          work.bytes, work.flops, peaks_.read_bytes / 1e9, peaks_.bf16_flops / 1e12, limit * 1e6,
          limit / time.median);
    } else {
      fmt::print("{:<30}{:>6}{:>12.2f}{:>8.1f}%{:>11.0f}{:>11.1f}{:>12.2f}{:>7.1f}%\n", name, rows,
                 time.median * 1e6, time.spread * 100, gb_s, tflop_s, limit * 1e6,
                 limit / time.median * 100);
    }
    std::fflush(stdout);
  }

  ops::Ops& ops() { return backend_.ops(); }
  // Copies of weights of `bytes` that no cache holds together.
  static int copies(uint64_t bytes) {
    return static_cast<int>(
        std::clamp<uint64_t>((160ull << 20) / std::max<uint64_t>(bytes, 1) + 1, 1, 64));
  }

  void boundary() {
    const std::vector<float> fn = in_.floats(24 * 4 * kHidden, 0.01f);
    const ops::WeightSource source{
        .format = ops::WeightFormat::kF32, .n = 24, .k = 4 * kHidden, .weight = fn.data()};
    std::vector<std::unique_ptr<ops::Linear>> sites;
    const int n = copies(24 * 4 * kHidden * 4);
    for (int i = 0; i < n; ++i) sites.push_back(in_.must(ops().make_mix(source, kStreams)));
    for (const int32_t rows : kRows) boundary_of(sites, rows);
  }
  void boundary_of(const std::vector<std::unique_ptr<ops::Linear>>& sites, int32_t rows) {
    const auto n = static_cast<int>(sites.size());
    const auto mark = in_.mark();
    ops::BoundaryArgs a;
    a.n_streams = kStreams;
    a.d_hidden = kHidden;
    a.n_rows = a.n_expand = a.n_mix = rows;
    a.streams = in_.bf16(rows * kStreams * kHidden);
    a.y = {in_.bf16(rows * kHidden), rows, kHidden};
    a.post = in_.put(in_.floats(rows * kStreams, 0.3f));
    a.comb = in_.put(in_.floats(rows * kStreams * kStreams, 0.2f));
    a.pre_in = a.pre = in_.put(in_.floats(rows * kStreams, 0.3f));
    a.norm = in_.bf16(kHidden);
    a.h = {in_.room<uint16_t>(rows * kHidden), rows, kHidden};
    a.site = {nullptr, in_.put(in_.floats(24, 1)), in_.put(in_.floats(3, 1))};
    a.sinkhorn_iters = 20;
    a.hc_eps = 1e-6f;
    a.norm_eps = 1e-20f;
    const double t = rows;
    const Work work{t * kHidden * 2 * (4 + 4 + 1 + 1) + 24.0 * 4 * kHidden * 4,
                    2 * t * 24 * 4 * kHidden};
    report("boundary", rows, work, n, true, [&](int i) {
      a.site.fn = sites[static_cast<size_t>(i % n)].get();
      ops().boundary(a, scratch_, in_.stream());
    });
    in_.release(mark);
  }

  void product(std::string_view name, ops::WeightFormat format, int64_t n, int64_t k, bool f32) {
    const HostWeights host(format, n, k);
    const int n_copies = copies(host.bytes());
    std::vector<std::unique_ptr<ops::Linear>> weights;
    for (int i = 0; i < n_copies; ++i)
      weights.push_back(in_.must(ops().make_linear(std::span(&host.source, 1))));
    for (const int32_t rows : kRows) {
      // Logits are wanted of at most one row a sequence.
      if (n == kVocab && rows > kMaxDecode) continue;
      product_of(name, weights, host.bytes(), rows, f32);
    }
  }
  void product_of(std::string_view name, const std::vector<std::unique_ptr<ops::Linear>>& weights,
                  uint64_t bytes, int32_t rows, bool f32) {
    const int64_t n = weights[0]->n(), k = weights[0]->k();
    const auto n_copies = static_cast<int>(weights.size());
    const auto mark = in_.mark();
    ops::LinearArgs a;
    a.x = {in_.bf16(rows * k), rows, k};
    if (f32) {
      a.y_f32 = {in_.room<float>(rows * n), rows, n};
    } else {
      a.y = {in_.room<uint16_t>(rows * n), rows, n};
    }
    const double t = rows;
    const Work work{static_cast<double>(bytes) + t * 2 * static_cast<double>(k) +
                        t * static_cast<double>(n) * (f32 ? 4 : 2),
                    2 * t * static_cast<double>(n * k)};
    report(name, rows, work, n_copies, true, [&](int i) {
      a.weight = weights[static_cast<size_t>(i % n_copies)].get();
      ops().linear(a, scratch_, in_.stream());
    });
    in_.release(mark);
  }

  void query() {
    const HostWeights wq(ops::WeightFormat::kFp8Tile, kHeads * kHead, kLora);
    const int n = copies(wq.bytes());
    std::vector<std::unique_ptr<ops::Linear>> weights;
    for (int i = 0; i < n; ++i)
      weights.push_back(in_.must(ops().make_linear(std::span(&wq.source, 1))));
    for (const int32_t rows : kRows) query_of(weights, wq.bytes(), rows);
  }
  void query_of(const std::vector<std::unique_ptr<ops::Linear>>& weights, uint64_t bytes,
                int32_t rows) {
    const auto n = static_cast<int>(weights.size());
    const auto mark = in_.mark();
    ops::QueryArgs a;
    a.q_raw = {in_.bf16(rows * kLora), rows, kLora};
    a.norm = in_.bf16(kLora);
    a.eps = 1e-20f;
    a.rope = in_.put(in_.floats(rows * kRope, 0.5f));
    a.d_rope = kRope;
    a.d_head = kHead;
    a.d_index = kIndex;
    a.q = {in_.room<uint16_t>(rows * kHeads * kHead), rows, kHeads * kHead};
    const double t = rows;
    const Work work{static_cast<double>(bytes) + t * 2 * (kLora + kHeads * kHead),
                    2 * t * kHeads * kHead * kLora};
    report("query fp8 32768x1280", rows, work, n, true, [&](int i) {
      a.wq = weights[static_cast<size_t>(i % n)].get();
      ops().query(a, scratch_, in_.stream());
    });
    in_.release(mark);
  }

  void out_proj() {
    const HostWeights a_host(ops::WeightFormat::kFp8Tile, kGroups * kOutLora,
                             kHeads * kHead / kGroups);
    const HostWeights b_host(ops::WeightFormat::kFp8Tile, kHidden, kGroups * kOutLora);
    const int n = copies(a_host.bytes() + b_host.bytes());
    std::vector<std::unique_ptr<ops::Linear>> wo_a, wo_b;
    for (int i = 0; i < n; ++i) {
      wo_a.push_back(in_.must(ops().make_grouped(a_host.source, kGroups)));
      wo_b.push_back(in_.must(ops().make_linear(std::span(&b_host.source, 1))));
    }
    for (const int32_t rows : kRows) out_proj_of(wo_a, wo_b, a_host.bytes() + b_host.bytes(), rows);
  }
  void out_proj_of(const std::vector<std::unique_ptr<ops::Linear>>& wo_a,
                   const std::vector<std::unique_ptr<ops::Linear>>& wo_b, uint64_t bytes,
                   int32_t rows) {
    const auto n = static_cast<int>(wo_a.size());
    const auto mark = in_.mark();
    ops::OutArgs a;
    a.o = {in_.bf16(rows * kHeads * kHead), rows, kHeads * kHead};
    a.u = {in_.room<uint16_t>(rows * kGroups * kOutLora), rows, kGroups * kOutLora};
    a.y = {in_.room<uint16_t>(rows * kHidden), rows, kHidden};
    const double t = rows;
    const Work work{
        static_cast<double>(bytes) + t * 2 * (kHeads * kHead + 2 * kGroups * kOutLora + kHidden),
        2 * t * (kOutLora * kHeads * kHead + kHidden * kGroups * kOutLora)};
    report("out_proj", rows, work, n, true, [&](int i) {
      a.wo_a = wo_a[static_cast<size_t>(i % n)].get();
      a.wo_b = wo_b[static_cast<size_t>(i % n)].get();
      ops().out_proj(a, scratch_, in_.stream());
    });
    in_.release(mark);
  }

  void latent_write(int32_t rows) {
    const auto mark = in_.mark();
    ops::LatentArgs a;
    a.kv = {in_.bf16(rows * kHead), rows, kHead};
    a.norm = in_.bf16(kHead);
    a.eps = 1e-20f;
    a.rope = in_.put(in_.floats(rows * kRope, 0.5f));
    a.d_rope = kRope;
    const int64_t record = ops::window_record_bytes(kHead);
    a.out = {in_.room<uint8_t>(rows * record), rows, record};
    const double t = rows;
    report("latent_write", rows, {t * static_cast<double>(kHead * 2 + record), 0}, 1, true,
           [&](int) { ops().latent_write(a, in_.stream()); });
    in_.release(mark);
  }

  void route(int32_t rows) {
    const auto mark = in_.mark();
    ops::StepRows step;
    step.n_rows = rows;
    step.image = in_.room<uint8_t>(rows);
    ops::RouteArgs a;
    a.rows = &step;
    a.n_rows = rows;
    a.logits = {in_.put(in_.floats(rows * kExperts, 2)), rows, kExperts};
    a.bias = in_.put(in_.floats(kExperts, 0.1f));
    a.top_k = kTopK;
    a.scaling = 1.5f;
    a.expert = {in_.room<int32_t>(rows * kTopK), rows, kTopK};
    a.weight = {in_.room<float>(rows * kTopK), rows, kTopK};
    report("route", rows, {rows * 4.0 * (kExperts + 2 * kTopK), 0}, 1, true,
           [&](int) { ops().route(a, in_.stream()); });
    in_.release(mark);
  }

  void final_norm(int32_t rows) {
    const auto mark = in_.mark();
    std::vector<int32_t> index;
    for (int32_t i = 0; i < rows; ++i) index.push_back(i);
    ops::FinalArgs a;
    a.index = in_.put(index);
    a.n = rows;
    a.n_streams = kStreams;
    a.d_hidden = kHidden;
    a.streams = in_.bf16(rows * kStreams * kHidden);
    a.pre = in_.put(in_.floats(rows * kStreams, 0.3f));
    a.norm = in_.bf16(kHidden);
    a.eps = 1e-20f;
    a.x = {in_.room<uint16_t>(rows * kHidden), rows, kHidden};
    report("final_norm", rows, {rows * 2.0 * kHidden * (kStreams + 1), 0}, 1, true,
           [&](int) { ops().final_norm(a, in_.stream()); });
    in_.release(mark);
  }

  // Search over all entries of a source of ratio 1, then window and listed entries.
  void attention(int32_t rows) {
    const auto mark = in_.mark();
    AttentionInput x(in_, rows, kContext, rows == kPrefill);
    ops::IndexArgs s = x.index();
    const double t = rows, visible = rows == kPrefill ? kContext - kPrefill / 2.0 : kContext;
    const double read_once = rows == kPrefill ? kContext : visible * t;
    report("index_select 131072", rows,
           {read_once * 68 + t * 4 * kListed, 2 * t * visible * kIndexHeads * kIndex}, 1, true,
           [&](int) { ops().index_select(s, scratch_, in_.stream()); });
    ops::AttendArgs a = x.attend();
    const double window_once = rows == kPrefill ? t : t * kWindow;
    report("sparse_attend 128+512", rows,
           {t * 288 * kListed + window_once * 528 + t * 4 * kHeads * kHead,
            4 * t * kHeads * kHead * (kWindow + kListed)},
           1, true, [&](int) { ops().sparse_attend(a, scratch_, in_.stream()); });
    a.source = -1;
    report("sparse_attend window", rows,
           {window_once * 528 + t * 4 * kHeads * kHead, 4 * t * kHeads * kHead * kWindow}, 1, true,
           [&](int) { ops().sparse_attend(a, scratch_, in_.stream()); });
    in_.release(mark);
  }

  void experts(int32_t rows) {
    if (experts_ == nullptr) {
      // One expert's bytes for all: the addresses differ, which is what time depends on.
      const HostWeights up(ops::WeightFormat::kFp4Row, kInter, kHidden);
      const HostWeights down(ops::WeightFormat::kFp4Row, kHidden, kInter);
      const HostWeights shared_up(ops::WeightFormat::kFp8Tile, kInter, kHidden);
      const HostWeights shared_down(ops::WeightFormat::kFp8Tile, kHidden, kInter);
      const std::vector<ops::ExpertSource> routed(kExperts, {up.source, up.source, down.source});
      experts_ = in_.must(
          ops().make_experts(routed, {shared_up.source, shared_up.source, shared_down.source}));
    }
    const auto mark = in_.mark();
    constexpr int kDraws = 16;  // other experts in each call
    std::vector<const int32_t*> chosen;
    double n_touched = 0;
    for (int i = 0; i < kDraws; ++i) {
      const std::vector<int32_t> ids = in_.choices(rows, kTopK, kExperts);
      std::vector<uint8_t> touched(kExperts);
      for (const int32_t e : ids) touched[static_cast<size_t>(e)] = 1;
      n_touched += static_cast<double>(std::count(touched.begin(), touched.end(), 1)) / kDraws;
      chosen.push_back(in_.put(ids));
    }
    ops::MoeArgs a;
    a.experts = experts_.get();
    a.h = {in_.bf16(rows * kHidden), rows, kHidden};
    a.weight = {in_.put(in_.floats(rows * kTopK, 0.3f)), rows, kTopK};
    a.limit = 10;
    a.y = {in_.room<uint16_t>(rows * kHidden), rows, kHidden};
    const double t = rows, values = 3.0 * kHidden * kInter;
    const Work work{n_touched * values * (0.5 + 1 / 32.0) + values + t * 4 * kHidden,
                    2 * t * values * (kTopK + 1)};
    report("moe_ffn 384+1 experts", rows, work, kDraws, true, [&](int i) {
      a.expert = {chosen[static_cast<size_t>(i % kDraws)], rows, kTopK};
      ops().moe_ffn(a, scratch_, in_.stream());
    });
    in_.release(mark);
  }

  // With the copies of parameters and results: calls cannot be recorded.
  void sampler(int32_t rows) {
    auto made = backend_.make_sampler(
        {.n_vocab = static_cast<int32_t>(kVocab), .n_slots = 1, .max_rows = rows});
    if (!made || *made == nullptr) return;
    const auto mark = in_.mark();
    float* logits = in_.put(in_.floats(rows * kVocab, 3));
    for (const int mode : {0, 1, 2, 3}) {
      ops::SampleRow row;
      row.temperature = mode == 0 ? 0 : 1;
      row.top_p = mode == 2 ? 0.95f : 1;
      row.top_k = mode == 3 ? 50 : 0;
      const std::vector<ops::SampleRow> asked(static_cast<size_t>(rows), row);
      constexpr const char* kNames[] = {"sample greedy", "sample T=1", "sample T=1 top-p 0.95",
                                        "sample T=1 top-k 50"};
      report(kNames[mode], rows, {rows * 4.0 * kVocab, 0}, 1, false, [&](int) {
        const core::Status queued = (*made)->sample({logits, rows, kVocab}, asked, in_.stream());
        HADAL_CHECK(queued.has_value(), queued.has_value() ? "" : queued.error().message);
      });
    }
    in_.release(mark);
  }

  DeviceInputs in_;
  ops::Backend& backend_;
  const ops::Peaks peaks_;
  const bool json_;
  ops::Ops::Scratch scratch_;
  std::unique_ptr<ops::Experts> experts_;
};

}  // namespace

int bench_device_ops(ops::Backend& backend, bool json) {
  const auto peaks = backend.measure_peaks();
  if (!peaks) {
    fmt::print(stderr, "hadal bench ops: {}\n", peaks.error().message);
    return 1;
  }
  DeviceBench(backend, *peaks, json).run();
  return 0;
}

}  // namespace hadal::main
