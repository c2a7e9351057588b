#include "dense_time.h"

#include "dense_rig.h"

namespace hadal::cuda {

double time_us(int launches, const std::function<void(int, cudaStream_t)>& launch) {
  cudaStream_t stream;
  cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  launch(0, stream);
  cuda_ok(cudaStreamSynchronize(stream), "warm up");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) launch(i, stream);
  cuda_ok(cudaStreamEndCapture(stream, &graph), "end of capture");
  cuda_ok(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t a, b;
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  std::vector<float> times;
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(a, stream);
    cudaGraphLaunch(exec, stream);
    cudaEventRecord(b, stream);
    cuda_ok(cudaStreamSynchronize(stream), "replay");
    float ms = 0;
    cudaEventElapsedTime(&ms, a, b);
    if (i >= 2) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return times[times.size() / 2] * 1000.0 / launches;
}

void report(const std::string& what, int64_t rows, double us, double bytes, double flops) {
  const double by_bytes = bytes / 4.2e6, by_flops = flops / 762e6;
  const double limit = std::max(by_bytes, by_flops);
  std::printf("%-28s rows %5lld  %9.2f us  limit %8.2f  %3.0f%%  %5.2f TB/s %6.1f TFLOP/s\n",
              what.c_str(), static_cast<long long>(rows), us, limit, 100 * limit / us,
              bytes / us / 1e6, flops / us / 1e6);
  std::fflush(stdout);
}

namespace {

void time_linear(const char* what, WeightFormat format, int64_t n, int64_t k, int32_t groups,
                 bool plain, const std::vector<int64_t>& row_counts, const Gpu& gpu) {
  const HostMatrix m(format, n, k, 1);
  const double bytes = static_cast<double>(source_bytes(m.source) + source_scales(m.source));
  const int copies = std::clamp(static_cast<int>(240e6 / bytes) + 1, 2, 24);
  std::vector<std::unique_ptr<ops::Linear>> weights;
  for (int i = 0; i < copies; ++i) {
    auto made = groups > 1 ? make_grouped(m.source, groups) : make_linear({&m.source, 1});
    weights.push_back(std::move(made.value()));
  }
  const int64_t columns = k * groups, out = n;
  for (const int64_t rows : row_counts) {
    const OnDevice<uint16_t> x(random_rows(rows * columns, 3));
    const OnDevice<uint16_t> y(static_cast<size_t>(rows * out));
    const Scratch scratch(
        linear_scratch_bytes({.max_rows = static_cast<int32_t>(rows), .widest_k = columns}));
    const int launches = rows > 1000 ? copies : copies * std::max(1, 48 / copies);
    const double us = time_us(launches, [&](int i, cudaStream_t s) {
      ops::LinearArgs args;
      args.weight = weights[static_cast<size_t>(i % copies)].get();
      args.x = {x.get(), rows, columns};
      args.plain_input = plain;
      args.y = {y.get(), rows, out};
      launch_linear(args, scratch, gpu, s);
    });
    report(what, rows, us, bytes + static_cast<double>(rows * (columns + out) * 2),
           2.0 * static_cast<double>(rows * n * k));
  }
}

void time_moe(int64_t n_experts, int64_t top_k, const std::vector<int64_t>& row_counts,
              const Gpu& gpu) {
  const int64_t hidden = 5120, inter = 2304;
  std::vector<HostExpert> kinds;
  for (uint32_t i = 0; i < 2; ++i) kinds.emplace_back(WeightFormat::kFp4Row, inter, hidden, 50 + i);
  const HostExpert shared(WeightFormat::kFp8Tile, inter, hidden, 9);
  std::vector<ops::ExpertSource> sources;
  for (int64_t e = 0; e < n_experts; ++e)
    sources.push_back(kinds[static_cast<size_t>(e % 2)].source());
  auto made = make_experts(sources, shared.source());
  if (!made) {
    require(false, made.error().message);
    return;
  }
  const double expert_bytes = 3.0 * static_cast<double>(inter * hidden) * (0.5 + 1.0 / 32),
               shared_bytes = 3.0 * static_cast<double>(inter * hidden);
  for (const int64_t rows : row_counts) {
    const int sets = rows == 1 ? 32 : rows <= 8 ? 8 : 3;
    const OnDevice<uint16_t> h(random_rows(rows * hidden, 3));
    const OnDevice<uint16_t> y(static_cast<size_t>(rows * hidden));
    std::vector<OnDevice<int32_t>> ids;
    std::mt19937 random(8);
    double touched = 0;
    for (int s = 0; s < sets; ++s) {
      std::vector<int32_t> list;
      std::vector<bool> used(static_cast<size_t>(n_experts));
      for (int64_t t = 0; t < rows; ++t) {
        std::vector<int32_t> row;
        while (static_cast<int64_t>(row.size()) < top_k) {
          const auto e = static_cast<int32_t>(random() % static_cast<uint32_t>(n_experts));
          if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
        }
        std::sort(row.begin(), row.end());
        for (const int32_t e : row) used[static_cast<size_t>(e)] = true;
        list.insert(list.end(), row.begin(), row.end());
      }
      touched += static_cast<double>(std::count(used.begin(), used.end(), true));
      ids.emplace_back(list);
    }
    touched /= sets;
    const OnDevice<float> w(std::vector<float>(static_cast<size_t>(rows * top_k), 0.25f));
    const Scratch scratch(moe_ffn_scratch_bytes({.max_rows = static_cast<int32_t>(rows),
                                                 .top_k = static_cast<int32_t>(top_k),
                                                 .d_inter = inter,
                                                 .d_hidden = hidden}));
    const double us = time_us(sets, [&](int i, cudaStream_t s) {
      ops::MoeArgs args;
      args.experts = made.value().get();
      args.h = {h.get(), rows, hidden};
      args.expert = {ids[static_cast<size_t>(i)].get(), rows, top_k};
      args.weight = {w.get(), rows, top_k};
      args.limit = 10;
      args.y = {y.get(), rows, hidden};
      launch_moe_ffn(args, scratch, gpu, s);
    });
    const double bytes = touched * expert_bytes + shared_bytes,
                 flops = 6.0 * static_cast<double>(rows * (top_k + 1) * inter * hidden);
    report("moe " + std::to_string(n_experts) + " experts + shared", rows, us, bytes, flops);
  }
}

}  // namespace

void time_all(const Gpu& gpu, int64_t most) {
  const auto upto = [&](std::vector<int64_t> counts) {
    std::erase_if(counts, [&](int64_t n) { return n > most; });
    return counts;
  };
  const auto fp8 = WeightFormat::kFp8Tile, bf16 = WeightFormat::kBf16;
  const std::vector<int64_t> counts = upto({1, 2, 8, 64, 256, 8192});
  time_linear("wq_a+wkv 1792x5120", fp8, 1792, 5120, 1, false, counts, gpu);
  time_linear("wq_b 32768x1280", fp8, 32768, 1280, 1, false, counts, gpu);
  time_linear("wo_a 8x 1024x4096", fp8, 8192, 4096, 8, true, counts, gpu);
  time_linear("wo_b 5120x8192", fp8, 5120, 8192, 1, false, counts, gpu);
  time_linear("engram 25600x6144", fp8, 25600, 6144, 1, false, upto({1, 8, 64, 256}), gpu);
  time_linear("gate 384x5120", bf16, 384, 5120, 1, false, counts, gpu);
  time_linear("compress 1024x5120", bf16, 1024, 5120, 1, false, counts, gpu);
  time_linear("head 129280x5120", bf16, 129280, 5120, 1, false, upto({1, 8, 64}), gpu);
  time_moe(384, 6, upto({1, 2, 4, 8, 64, 256, 1024, 8192}), gpu);
  if (most > 64) time_moe(48, 1, upto({96, 192, 576, 8192}), gpu);
}

void profile(const Gpu& gpu) {
  time_linear("wq_b 32768x1280", WeightFormat::kFp8Tile, 32768, 1280, 1, false, {1}, gpu);
  time_moe(48, 6, {1}, gpu);
}

}  // namespace hadal::cuda
