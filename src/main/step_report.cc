#include "main/step_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "main/cmd_bench_limits.h"

namespace hadal::main {
namespace {

double at_or(const std::vector<double>& values, size_t i, double otherwise) {
  return i < values.size() ? values[i] : otherwise;
}

void report_op(const StepFigures& f, const OpTime& op, double all_seconds, const StepRates& rates,
               bool json) {
  const auto n = static_cast<double>(f.seconds.size());
  const double ms = op.seconds / n * 1e3, calls = static_cast<double>(op.n_calls) / n;
  const double part = op.seconds / all_seconds;
  const double limit = std::max(op.bytes / rates.read, 2 * op.macs / rates.flops) / n * 1e3;
  if (json) {
    fmt::print(
        "{{\"bench\":\"step\",\"workload\":\"{}\",\"op\":\"{}\",\"calls\":{:.1f},"
        "\"mean_ms\":{:.4f},\"part\":{:.4f},\"limit_ms\":{:.4f}}}\n",
        f.name, op.name, calls, ms, part, limit);
    return;
  }
  fmt::print("  {:<22}{:>6.1f} calls{:>10.3f} ms{:>7.1f}% of the step   limit {:>9.3f} ms{}\n",
             op.name, calls, ms, part * 100, limit,
             limit > 0 ? fmt::format(": {:.1f}%", limit / ms * 100) : "");
}

}  // namespace

void report_step(const StepFigures& f, const StepRates& rates, const std::string& device,
                 bool json) {
  std::vector<double> limits, shares;
  for (size_t i = 0; i < f.seconds.size(); ++i) {
    limits.push_back(std::max(f.bytes / at_or(f.reads, i, rates.read),
                              2 * f.macs / at_or(f.peaks, i, rates.flops)));
    shares.push_back(limits.back() / f.seconds[i]);
  }
  const Spread seconds = summarise(f.seconds);
  const double limit = summarise(limits).median, share = summarise(shares).median;
  const StepRates mine = {f.reads.empty() ? rates.read : summarise(f.reads).median,
                          f.peaks.empty() ? rates.flops : summarise(f.peaks).median};
  const double tokens_s = f.tokens / seconds.median;
  if (json) {
    fmt::print(
        "{{\"bench\":\"step\",\"workload\":\"{}\",\"device\":\"{}\",\"tokens\":{},\"bytes\":{:.0f},"
        "\"gflop\":{:.2f},\"median_ms\":{:.3f},\"spread\":{:.4f},\"tokens_s\":{:.3f},"
        "\"read_gb_s\":{:.3f},\"peak_gflop_s\":{:.2f},\"limit_ms\":{:.3f},\"share\":{:.4f},"
        "\"logits\":\"{}\"}}\n",
        f.name, device, f.tokens, f.bytes, 2e-9 * f.macs, seconds.median * 1e3, seconds.spread,
        tokens_s, mine.read / 1e9, mine.flops / 1e9, limit * 1e3, share, f.logits);
  } else {
    fmt::print(
        "{:<10}{:>10.2f} ms{:>8.1f}% spread{:>10.2f} tokens/s   limit {:>9.2f} ms: {:.1f}%\n",
        f.name, seconds.median * 1e3, seconds.spread * 100, tokens_s, limit * 1e3, share * 100);
  }
  double all_seconds = 0;
  for (const OpTime& op : f.ops) all_seconds += op.seconds;
  for (const OpTime& op : f.ops) report_op(f, op, all_seconds, mine, json);
}

void report_memory(uint64_t peak, uint64_t weights, uint64_t plan, bool json) {
  const double bound = 1.1 * static_cast<double>(weights) + static_cast<double>(plan);
  const double share = static_cast<double>(peak) / bound;
  if (json) {
    fmt::print(
        "{{\"bench\":\"step\",\"workload\":\"memory\",\"peak_bytes\":{},\"weight_bytes\":{},"
        "\"plan_bytes\":{},\"share\":{:.4f}}}\n",
        peak, weights, plan, share);
    return;
  }
  fmt::print(
      "memory    {:>10.1f} MB peak; weights {:.1f} MB, plan {:.1f} MB: {:.1f}% of 1.1 x "
      "weights + plan\n",
      static_cast<double>(peak) / 1e6, static_cast<double>(weights) / 1e6,
      static_cast<double>(plan) / 1e6, share * 100);
}

}  // namespace hadal::main
