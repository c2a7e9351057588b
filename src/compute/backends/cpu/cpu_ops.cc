#include "compute/backends/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace hadal::cpu {
namespace {

const RowKernels& row_kernels(CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::kAvx512) return kRowKernelsAvx512;
  if (level == CpuLevel::kAvx2) return kRowKernelsAvx2;
#endif
  (void)level;
  return kRowKernelsBase;
}

}  // namespace

CpuOps::CpuOps(ThreadPool& pool, CpuLevel level)
    : pool_(pool), linear_(linear_kernels(level)), row_(row_kernels(level)) {}

uint64_t CpuOps::workspace_bytes(const Limits& limits) const {
  const int64_t t = limits.max_rows;
  // linear, query, out_proj: snapped inputs; out_proj also two index arrays of rows x groups.
  int64_t bytes =
      2 * padded64(t * limits.widest_k * 2) + 2 * padded64((t + 16) * limits.n_groups * 4);
  // moe_ffn: snapped input, gate and up, activations, outputs of routed and shared rows, lists.
  const int64_t routed = t * limits.top_k;
  const int64_t inter = (limits.d_inter + 15) / 16 * 16;
  bytes = std::max(
      bytes, padded64(t * limits.d_hidden * 2) + padded64((routed + t) * 2 * inter * 2) +
                 padded64((routed + t) * (inter + 32) * 2) +
                 padded64((routed + t) * limits.d_hidden * 2) + 8 * padded64((routed + 1024) * 8));
  // index_select: scores of a tile of rows.
  const int64_t row_scores = padded64(static_cast<int64_t>(limits.max_end) * 4 + 64);
  bytes = std::max(bytes, std::max(row_scores, std::min(t * row_scores, kScoreBytes)) + 4096);
  // boundary with few rows: widened streams and partial mixes; compress: latents and keys.
  bytes = std::max(bytes, padded64(pool_.n_threads() * limits.widest_k * 4) +
                              padded64(pool_.n_threads() * 8 * 128 * 4) + (64 << 10));
  bytes = std::max(bytes, padded64(t * limits.d_head * 2) + padded64(t * limits.d_index * 2) +
                              2 * padded64(t * 4) + 4096);
  return static_cast<uint64_t>(bytes);
}

void CpuOps::linear(const ops::LinearArgs& args, Scratch scratch, ops::Stream&) {
  const auto& weight = static_cast<const CpuLinear&>(*args.weight);
  const int64_t n = args.x.n_rows, k = args.x.n_cols;
  if (n == 0) return;
  HADAL_CHECK(k == weight.k(), "a linear's input width");
  const bool f32 = args.y_f32.data != nullptr;
  LinearCall call;
  call.weights = &weight.packed();
  call.x = args.x.data;
  call.x_stride = args.x.stride;
  call.y = f32 ? static_cast<void*>(args.y_f32.data) : static_cast<void*>(args.y.data);
  call.y_stride = f32 ? args.y_f32.stride : args.y.stride;
  call.y_type = f32 ? OutputType::kF32 : OutputType::kBF16;
  const RowGroup all[] = {{0, 0, static_cast<int32_t>(n)}};
  call.groups = all;
  const bool snap = weight.quantises() && !args.plain_input;
  uint16_t* snapped = nullptr;
  if (snap) {
    snapped = Carver(scratch).take<uint16_t>(n * k);
    call.x = snapped;
    call.x_stride = k;
  }
  pool_.run([&](const Lane& lane) {
    if (snap) {
      const Range rows = share(n, lane);
      for (int64_t t = rows.begin; t < rows.end; ++t) row_.snap8(args.x.row(t), k, snapped + t * k);
      lane.barrier();
    }
    cpu::linear(linear_, call, lane);
  });
}

void CpuOps::rope(const ops::RopeArgs& args, ops::Stream&) {
  const auto half = static_cast<int64_t>(args.inv_freq.size());
  pool_.run([&](const Lane& lane) {
    const Range rows = share(args.n_rows, lane);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const auto p = static_cast<float>(std::max(args.positions[t] - args.back, 0));
      float* out = args.out + t * half * 2;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = p * args.inv_freq[static_cast<size_t>(i)];
        out[2 * i] = static_cast<float>(std::cos(angle));
        out[2 * i + 1] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void CpuOps::embed_streams(const ops::EmbedArgs& args, ops::Stream&) {
  const int64_t d = args.table.n_cols;
  pool_.run([&](const Lane& lane) {
    const Range rows = share(args.rows->n_rows, lane);
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const uint16_t* e = args.overrides != nullptr ? args.overrides[t] : nullptr;
      if (e == nullptr) e = args.table.row(args.rows->ids[t]);
      for (int32_t c = 0; c < args.n_streams; ++c) {
        std::memcpy(args.streams + (t * args.n_streams + c) * d, e, static_cast<size_t>(d) * 2);
        args.pre[t * args.n_streams + c] = c == 0 ? 1.0f : 0.0f;
      }
    }
  });
}

void CpuOps::final_norm(const ops::FinalArgs& args, ops::Stream&) {
  pool_.run([&](const Lane& lane) {
    const Range rows = share(args.n, lane);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t t = args.index[i];
      row_.collapse(args.streams + t * args.n_streams * args.d_hidden,
                    args.pre + t * args.n_streams, args.n_streams, args.d_hidden, args.x.row(i));
      row_.rms(args.x.row(i), args.norm, args.d_hidden, args.eps, args.x.row(i));
    }
  });
}

}  // namespace hadal::cpu
