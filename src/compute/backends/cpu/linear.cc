#include "compute/backends/cpu/linear.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cpu/linear_job.h"
#include "compute/backends/cpu/linear_shape.h"

namespace hadal::cpu {
namespace {

constexpr PackOrder kPairs = PackOrder::kPairs;
// Streaming a panel of FP4 takes about as long as six rows more (2 flop a weight at 170 GFLOP/s,
// half a byte a weight at 16 GB/s). On AVX2 rows take 3.0, 5.1, 8.1, 10.2 ns a line, reading
// one 3.0.
constexpr int64_t kPanelRows512 = 6, kPanelRowsAvx2 = 0;
constexpr LinearKernels kBase[] = {{kPairs, level_base::run, level_base::peak, kPanelRowsAvx2}};
#if defined(__x86_64__)
constexpr LinearKernels kAvx2[] = {
    {PackOrder::kRows, level_avx2::run, level_avx2::peak, kPanelRowsAvx2}};
constexpr LinearKernels kAvx512[] = {
    {kPairs, level_avx512::run, level_avx512::peak, kPanelRows512}};
constexpr LinearKernels kAvx512Bf16[] = {
    {kPairs, level_avx512bf16::run, level_avx512bf16::peak, kPanelRows512},
    {kPairs, level_avx512bf16_fma::run, level_avx512bf16_fma::peak, kPanelRows512},
};

// vdpbf16ps starts every 2.2 cycles on Sapphire Rapids (1.35 G/s beside 5.6 G/s of fma, measured),
// half of fma's multiply-adds a second; on Zen 4 it is the faster one. The bits are the same.
bool dot_is_faster() {
  return __builtin_cpu_is("amd");
}
#endif

// Time of a panel times `count` rows, in that of one row more.
int64_t panel_cost(const LinearKernels& kernels, int64_t count) {
  return count == 0 ? 0 : kernels.panel_rows + count;
}

// The first unit at which at least `target` of the call's cost lies behind.
int64_t unit_at_cost(const LinearKernels& kernels, const LinearCall& call, int64_t target) {
  const int64_t panels = call.weights->group_panels();
  int64_t unit = 0;
  for (const RowGroup& group : call.groups) {
    const int64_t cost = panel_cost(kernels, group.count);
    if (target < cost * panels) return unit + (cost == 0 ? 0 : target / cost);
    target -= cost * panels;
    unit += panels;
  }
  return unit;
}

void check_call(const LinearCall& call) {
  HADAL_CHECK(call.weights != nullptr && call.x != nullptr && call.y != nullptr);
  HADAL_CHECK(call.x_stride >= call.weights->k() || call.x_stride == 0,
              fmt::format("x_stride {} k {}", call.x_stride, call.weights->k()));
}

}  // namespace

std::span<const LinearKernels> linear_programs(CpuLevel level) {
#if defined(__x86_64__)
  switch (level) {
    case CpuLevel::kBase:
      return kBase;
    case CpuLevel::kAvx2:
      return kAvx2;
    case CpuLevel::kAvx512:
      return kAvx512;
    case CpuLevel::kAvx512Bf16:
      return kAvx512Bf16;
  }
#endif
  HADAL_CHECK(level == CpuLevel::kBase);
  return kBase;
}

const LinearKernels& linear_kernels(CpuLevel level) {
  const std::span<const LinearKernels> programs = linear_programs(level);
#if defined(__x86_64__)
  if (level == CpuLevel::kAvx512Bf16) return programs[dot_is_faster() ? 0 : 1];
#endif
  return programs[0];
}

int64_t linear_scratch_bytes() {
  return kLinearScratchBytes;
}

int64_t linear_units(const LinearCall& call) {
  return static_cast<int64_t>(call.groups.size()) * call.weights->group_panels();
}

Range linear_share(const LinearKernels& kernels, const LinearCall& call, const Lane& lane) {
  if (lane.count == 1) return {0, linear_units(call)};
  int64_t total = 0;
  for (const RowGroup& group : call.groups) {
    total += panel_cost(kernels, group.count) * call.weights->group_panels();
  }
  const int64_t begin = total * lane.index / lane.count;
  const int64_t end = total * (lane.index + 1) / lane.count;
  return {lane.index == 0 ? 0 : unit_at_cost(kernels, call, begin),
          lane.index + 1 == lane.count ? linear_units(call) : unit_at_cost(kernels, call, end)};
}

void linear(const LinearKernels& kernels, const LinearCall& call, Range units, std::byte* scratch) {
  check_call(call);
  const PackedLinear& weights = *call.weights;
  HADAL_CHECK(weights.readable_in(kernels.order), "weights packed for another level");
  const int64_t panels = weights.group_panels();
  int64_t unit = units.begin;
  while (unit < units.end) {
    const RowGroup& group = call.groups[static_cast<size_t>(unit / panels)];
    const int64_t panel = unit % panels;
    const int64_t count = std::min(units.end - unit, panels - panel);
    unit += count;
    if (group.count == 0) continue;
    HADAL_CHECK(group.group >= 0 && group.group < weights.n_groups(),
                fmt::format("group {} of {}", group.group, weights.n_groups()));
    PanelJob job{};
    job.format = weights.format();
    job.weight = reinterpret_cast<const unsigned char*>(weights.group_weight(group.group));
    job.scale = reinterpret_cast<const unsigned char*>(weights.group_scale(group.group));
    job.panel_begin = panel;
    job.panel_end = panel + count;
    job.n = weights.n();
    job.k = weights.k();
    job.n_blocks = weights.n_blocks();
    const int64_t x_bytes = weights.format() == WeightFormat::kF32 ? 4 : 2;
    const int64_t y_bytes = call.y_type == OutputType::kF32 ? 4 : 2;
    job.x = call.x;
    job.y = call.y;
    if (call.x_index != nullptr) {
      job.x_index = call.x_index + group.first;
    } else {
      job.x = static_cast<const char*>(call.x) + group.first * call.x_stride * x_bytes;
    }
    if (call.y_index != nullptr) {
      job.y_index = call.y_index + group.first;
    } else {
      job.y = static_cast<char*>(call.y) + group.first * call.y_stride * y_bytes;
    }
    job.x_stride = call.x_stride;
    job.y_stride = call.y_stride;
    job.y_is_bf16 = call.y_type == OutputType::kBF16;
    job.n_rows = group.count;
    job.scratch = reinterpret_cast<unsigned char*>(scratch);
    kernels.run(job);
  }
}

void linear(const LinearKernels& kernels, const LinearCall& call, const Lane& lane) {
  linear(kernels, call, linear_share(kernels, call, lane), lane.scratch);
}

void linear(const LinearKernels& kernels, const LinearCall& call, ThreadPool& pool) {
  HADAL_CHECK(pool.scratch_bytes() >= linear_scratch_bytes());
  pool.run([&](const Lane& lane) { linear(kernels, call, lane); });
}

}  // namespace hadal::cpu
