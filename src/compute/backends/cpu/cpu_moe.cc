#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/backends/cpu/cpu_ops.h"

namespace hadal::cpu {

void CpuOps::route(const ops::RouteArgs& args, ops::Stream&) {
  const int64_t n_experts = args.logits.n_cols;
  pool_.run([&](const Lane& lane) {
    Carver carver(lane.scratch, pool_.scratch_bytes());
    auto* score = carver.take<float>(n_experts);
    auto* select = carver.take<float>(n_experts);
    const Range rows = share(args.n_rows, lane);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const float* logit = args.logits.row(t);
      const bool image = args.rows->image[t] != 0 && args.bias_image != nullptr;
      const float* bias = image ? args.bias_image : args.bias;
      for (int64_t e = 0; e < n_experts; ++e) {
        const double x = logit[e];
        const double softplus = x > 30.0 ? x : std::log1p(row_.exp(x));
        score[e] = static_cast<float>(std::sqrt(softplus));
        const float s = score[e] + bias[e];
        select[e] = s == s ? s : -INFINITY;
      }
      int32_t* chosen = args.expert.row(t);
      for (int32_t k = 0; k < args.top_k; ++k) {
        int64_t best = -1;
        for (int64_t e = 0; e < n_experts; ++e) {
          const bool taken = std::find(chosen, chosen + k, e) != chosen + k;
          if (!taken && (best < 0 || select[e] > select[best])) best = e;
        }
        chosen[k] = static_cast<int32_t>(best);
      }
      float* weight = args.weight.row(t);
      float sum = 0;  // in order of choice, as the choice's scores come
      for (int32_t k = 0; k < args.top_k; ++k) sum += score[chosen[k]];
      std::sort(chosen, chosen + args.top_k);
      const bool normalise = args.normalise && args.top_k > 1;
      for (int32_t k = 0; k < args.top_k; ++k) {
        float w = score[chosen[k]];
        if (normalise) w = w / (sum + 1e-20f);
        weight[k] = w * args.scaling;
      }
    }
  });
}

namespace {

// Rows of a step grouped by expert. Entry i of the list is one (row, choice).
struct Dispatch {
  int32_t* row;     // [n] row of entry i
  float* weight;    // [n]
  int32_t* entry;   // [T, top_k] -> i
  RowGroup* group;  // [n_groups] experts with rows, ascending
  int64_t n_groups = 0;

  void build(const ops::MoeArgs& args, int64_t n_experts, int32_t* first) {
    const int64_t n = args.h.n_rows, k = args.expert.n_cols;
    std::fill_n(first, n_experts + 1, 0);
    for (int64_t t = 0; t < n; ++t)
      for (int64_t j = 0; j < k; ++j) ++first[args.expert.row(t)[j] + 1];
    n_groups = 0;
    for (int64_t e = 0; e < n_experts; ++e) {
      const int32_t count = first[e + 1];
      first[e + 1] += first[e];
      if (count > 0) group[n_groups++] = {static_cast<int32_t>(e), first[e], count};
    }
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t j = 0; j < k; ++j) {
        const int32_t i = first[args.expert.row(t)[j]]++;
        row[i] = static_cast<int32_t>(t);
        weight[i] = args.weight.row(t)[j];
        entry[t * k + j] = i;
      }
    }
  }
};

LinearCall product(const PackedLinear& w, const uint16_t* x, int64_t x_stride, uint16_t* y,
                   int64_t y_stride, std::span<const RowGroup> groups) {
  LinearCall call;
  call.weights = &w;
  call.x = x;
  call.x_stride = x_stride;
  call.y = y;
  call.y_stride = y_stride;
  call.groups = groups;
  return call;
}

}  // namespace

void CpuOps::moe_ffn(const ops::MoeArgs& args, Scratch scratch, ops::Stream&) {
  const auto& experts = static_cast<const CpuExperts&>(*args.experts);
  const int64_t n = args.h.n_rows, k = args.expert.n_cols, d = experts.d_hidden;
  if (n == 0) return;
  const int64_t n_experts = experts.up.n_groups(), routed = n * k, all = routed + n;
  const int64_t inter = experts.d_inter, up_column = experts.up.piece_column(1);
  const int64_t up_width = experts.up.n();
  Carver carver(scratch);
  Dispatch list;
  list.row = carver.take<int32_t>(routed);
  list.weight = carver.take<float>(routed);
  list.entry = carver.take<int32_t>(routed);
  list.group = carver.take<RowGroup>(std::min(routed, n_experts));
  auto* first = carver.take<int32_t>(n_experts + 1);
  auto* x = carver.take<uint16_t>(n * d);
  auto* up = carver.take<uint16_t>(all * up_width);
  auto* act = carver.take<uint16_t>(all * inter);
  auto* out = carver.take<uint16_t>(all * d);
  list.build(args, n_experts, first);
  const std::span<const RowGroup> groups(list.group, static_cast<size_t>(list.n_groups));
  const RowGroup dense[] = {{0, 0, static_cast<int32_t>(n)}};
  LinearCall up_call = product(experts.up, x, d, up, up_width, groups);
  up_call.x_index = list.row;
  const LinearCall up_shared =
      product(experts.shared_up, x, d, up + routed * up_width, up_width, dense);
  const LinearCall down_call = product(experts.down, act, inter, out, d, groups);
  const LinearCall down_shared =
      product(experts.shared_down, act + routed * inter, inter, out + routed * d, d, dense);
  pool_.run([&](const Lane& lane) {
    const Range rows = share(n, lane);
    for (int64_t t = rows.begin; t < rows.end; ++t) row_.snap8(args.h.row(t), d, x + t * d);
    lane.barrier();
    cpu::linear(linear_, up_call, lane);
    cpu::linear(linear_, up_shared, lane);
    lane.barrier();
    const Range entries = share(all, lane);
    for (int64_t i = entries.begin; i < entries.end; ++i) {
      const uint16_t* gate = up + i * up_width;
      uint16_t* a = act + i * inter;
      row_.swiglu(gate, gate + up_column, i < routed ? list.weight[i] : 1.0f, args.limit, inter, a);
      row_.snap8(a, inter, a);
    }
    lane.barrier();
    cpu::linear(linear_, down_call, lane);
    cpu::linear(linear_, down_shared, lane);
    lane.barrier();
    auto* acc = reinterpret_cast<float*>(lane.scratch);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      std::fill_n(acc, d, 0.0f);
      for (int64_t j = 0; j < k; ++j) row_.accumulate(out + list.entry[t * k + j] * d, d, acc);
      row_.accumulate(out + (routed + t) * d, d, acc);
      row_.narrow(acc, d, args.y.row(t));
    }
  });
}

}  // namespace hadal::cpu
