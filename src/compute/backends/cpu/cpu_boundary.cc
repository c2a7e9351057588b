#include <algorithm>
#include <cmath>

#include "compute/backends/cpu/cpu_ops.h"

// Hyper-connections between two sub-layers (model.md 3.3). The mix projection is a sum of one
// product per stream, in stream order: that gives enough panels for many threads at one row, and
// one order for any number of rows.
namespace hadal::cpu {
namespace {

constexpr int kMaxStreams = 8;

float sigmoid(const RowKernels& row, float x) {
  return 1.0f / (1.0f + static_cast<float>(row.exp(-x)));
}

void sinkhorn(float* a, int32_t c, int32_t iterations, float eps) {
  const auto columns = [&] {
    for (int32_t k = 0; k < c; ++k) {
      float s = a[k];
      for (int32_t j = 1; j < c; ++j) s += a[j * c + k];
      for (int32_t j = 0; j < c; ++j) a[j * c + k] /= s + eps;
    }
  };
  columns();
  for (int32_t i = 1; i < iterations; ++i) {
    for (int32_t j = 0; j < c; ++j) {
      float s = a[j * c];
      for (int32_t k = 1; k < c; ++k) s += a[j * c + k];
      for (int32_t k = 0; k < c; ++k) a[j * c + k] /= s + eps;
    }
    columns();
  }
}

// Softmax of each row plus eps, then Sinkhorn steps that begin and end with the columns.
void combine(const RowKernels& row, float* a, int32_t c, int32_t iterations, float eps) {
  for (int32_t j = 0; j < c; ++j) {
    float* r = a + j * c;
    float top = r[0];
    for (int32_t k = 1; k < c; ++k) top = std::max(top, r[k]);
    float sum = 0;
    for (int32_t k = 0; k < c; ++k) {
      r[k] = static_cast<float>(row.exp(r[k] - top));
      sum += r[k];
    }
    for (int32_t k = 0; k < c; ++k) r[k] = r[k] / sum + eps;
  }
  sinkhorn(a, c, iterations, eps);
}

struct Boundary {
  const ops::BoundaryArgs& args;
  const RowKernels& row;
  const LinearKernels& linear;
  int32_t c;          // streams
  int64_t d;          // hidden
  int64_t n_mix_out;  // 2c + c*c

  uint16_t* streams(int64_t t) const { return args.streams + t * c * d; }

  void expand(int64_t t, int64_t begin, int64_t end) const {
    row.expand(streams(t), args.y.row(t), args.post + t * c, args.comb + t * c * c, c, d, begin,
               end);
  }

  void collapse(int64_t t) const {
    uint16_t* h = args.h.row(t);
    row.collapse(streams(t), args.pre_in + t * c, c, d, h);
    row.rms(h, args.norm, d, args.norm_eps, h);
  }

  // partial: [c][stride] of row t, the product of each stream.
  void finish_mix(int64_t t, const float* partial, int64_t stride) const {
    const float mean = row.sum_squares(streams(t), c * d) / static_cast<float>(c * d);
    const float r = 1.0f / std::sqrt(mean + args.norm_eps);
    float m[2 * kMaxStreams + kMaxStreams * kMaxStreams];
    for (int64_t i = 0; i < n_mix_out; ++i) {
      float s = partial[i];
      for (int32_t j = 1; j < c; ++j) s += partial[j * stride + i];
      m[i] = s * r;
    }
    const float* base = args.site.base;
    const float* scale = args.site.scale;
    float* comb = args.comb + t * c * c;
    for (int32_t j = 0; j < c; ++j) {
      args.pre[t * c + j] = sigmoid(row, m[j] * scale[0] + base[j]) + args.hc_eps;
      args.post[t * c + j] = 2.0f * sigmoid(row, m[c + j] * scale[1] + base[c + j]);
    }
    for (int32_t i = 0; i < c * c; ++i) comb[i] = m[2 * c + i] * scale[2] + base[2 * c + i];
    combine(row, comb, c, args.sinkhorn_iters, args.hc_eps);
  }

  // The mix product of rows [first, first + n) whose streams are widened in z.
  LinearCall mix_call(const float* z, float* partial, const int32_t* index,
                      std::span<const RowGroup> groups) const {
    LinearCall call;
    call.weights = &static_cast<const CpuLinear*>(args.site.fn)->packed();
    call.x = z;
    call.x_stride = d;
    call.x_index = index;
    call.y = partial;
    call.y_stride = partial_stride();
    call.y_index = index;
    call.y_type = OutputType::kF32;
    call.groups = groups;
    return call;
  }
  int64_t partial_stride() const { return (n_mix_out + 15) / 16 * 16; }
};

// Row list of the mix: stream j of every row is group j.
void mix_groups(int32_t c, int32_t n, int32_t* index, RowGroup* groups) {
  for (int32_t j = 0; j < c; ++j) {
    groups[j] = {j, j * n, n};
    for (int32_t t = 0; t < n; ++t) index[j * n + t] = t * c + j;
  }
}

// Many rows: each lane does whole rows, a few at a time.
void by_rows(const Boundary& b, const Lane& lane, int64_t lane_scratch) {
  const ops::BoundaryArgs& args = b.args;
  const int64_t used = padded64(linear_scratch_bytes());
  constexpr int64_t kRows = 8;
  int64_t tile = kRows;
  const int64_t row_bytes = b.c * b.d * 4 + b.c * b.partial_stride() * 4;
  while (tile > 1 && used + tile * row_bytes + 4096 > lane_scratch) tile /= 2;
  Carver carver(lane.scratch + used, lane_scratch - used);
  auto* z = carver.take<float>(tile * b.c * b.d);
  auto* partial = carver.take<float>(tile * b.c * b.partial_stride());
  int32_t index[kRows * kMaxStreams];
  RowGroup groups[kMaxStreams];
  const Range rows = share(std::max({args.n_rows, args.n_expand, args.n_mix}), lane);
  for (int64_t t0 = rows.begin; t0 < rows.end; t0 += tile) {
    const int64_t t1 = std::min(rows.end, t0 + tile);
    for (int64_t t = t0; t < t1; ++t) {
      if (args.y.data != nullptr && t < args.n_expand) b.expand(t, 0, b.d);
      if (args.tap.data != nullptr && t < args.n_rows)
        b.row.mean_streams(b.streams(t), b.c, b.d, args.tap.row(t));
      if (args.norm != nullptr && t < args.n_rows) b.collapse(t);
    }
    const int64_t n = std::min<int64_t>(t1, args.n_mix) - t0;
    if (args.site.fn == nullptr || n <= 0) continue;
    for (int64_t t = 0; t < n; ++t) b.row.widen(b.streams(t0 + t), b.c * b.d, z + t * b.c * b.d);
    mix_groups(b.c, static_cast<int32_t>(n), index, groups);
    const LinearCall call =
        b.mix_call(z, partial, index, std::span(groups, static_cast<size_t>(b.c)));
    cpu::linear(b.linear, call, Range{0, linear_units(call)}, lane.scratch);
    for (int64_t t = 0; t < n; ++t)
      b.finish_mix(t0 + t, partial + t * b.c * b.partial_stride(), b.partial_stride());
  }
}

// Fewer rows than lanes: lanes share channels, then panels.
void by_channels(const Boundary& b, const Lane& lane, float* z, float* partial,
                 const LinearCall& call) {
  const ops::BoundaryArgs& args = b.args;
  const int64_t n_rows = std::max({args.n_rows, args.n_expand, args.n_mix});
  const Range part = share(b.d, lane, 16);
  for (int64_t t = 0; t < n_rows; ++t) {
    if (args.y.data != nullptr && t < args.n_expand) b.expand(t, part.begin, part.end);
    if (args.site.fn == nullptr || t >= args.n_mix) continue;
    for (int64_t j = 0; j < b.c; ++j) {
      const int64_t at = j * b.d + part.begin;
      b.row.widen(b.streams(t) + at, part.end - part.begin, z + t * b.c * b.d + at);
    }
  }
  lane.barrier();
  const int last = lane.count - 1;
  for (int64_t t = 0; t < n_rows; ++t) {
    if (t % lane.count != last - lane.index) continue;
    if (args.tap.data != nullptr && t < args.n_rows)
      b.row.mean_streams(b.streams(t), b.c, b.d, args.tap.row(t));
    if (args.norm != nullptr && t < args.n_rows) b.collapse(t);
  }
  if (args.site.fn == nullptr) return;
  cpu::linear(b.linear, call, lane);
  lane.barrier();  // pre_in, which may be pre, was read before this
  for (int64_t t = lane.index; t < args.n_mix; t += lane.count)
    b.finish_mix(t, partial + t * b.c * b.partial_stride(), b.partial_stride());
}

}  // namespace

void CpuOps::boundary(const ops::BoundaryArgs& args, Scratch scratch, ops::Stream&) {
  const int32_t c = args.n_streams;
  HADAL_CHECK(c <= kMaxStreams, "hc_mult above 8");
  const Boundary b{args, row_, linear_, c, args.d_hidden, 2 * c + c * c};
  const int32_t n_rows = std::max({args.n_rows, args.n_expand, args.n_mix});
  if (n_rows >= pool_.n_threads()) {
    pool_.run([&](const Lane& lane) { by_rows(b, lane, pool_.scratch_bytes()); });
    return;
  }
  Carver carver(scratch);
  auto* z = carver.take<float>(n_rows * c * args.d_hidden);
  auto* partial = carver.take<float>(n_rows * c * b.partial_stride());
  auto* index = carver.take<int32_t>(n_rows * c);
  RowGroup groups[kMaxStreams];
  LinearCall call;
  if (args.site.fn != nullptr) {
    mix_groups(c, args.n_mix, index, groups);
    call = b.mix_call(z, partial, index, std::span(groups, static_cast<size_t>(c)));
  }
  pool_.run([&](const Lane& lane) { by_channels(b, lane, z, partial, call); });
}

}  // namespace hadal::cpu
