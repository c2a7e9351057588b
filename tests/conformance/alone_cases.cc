#include <cstring>

#include "base/core/check.h"
#include "conformance/op_cases.h"

// A row's bits are the same alone and in any batch: rows together, then some of them by themselves.
// The output is the number of rows that differ, which is 0 on every backend.
namespace hadal::test {
namespace {

constexpr int32_t kStreams = 4;

struct BoundaryRows {
  std::vector<uint16_t> x, y;
  std::vector<float> post, comb, pre;
  int64_t h = 0;
  int32_t n = 0;

  BoundaryRows row(int32_t t) const {
    const auto part = [t](const auto& v, int64_t width) {
      const auto from = v.begin() + t * width;
      return std::decay_t<decltype(v)>(from, from + width);
    };
    return {part(x, kStreams * h),
            part(y, h),
            part(post, kStreams),
            part(comb, kStreams * kStreams),
            part(pre, kStreams),
            h,
            1};
  }
};

template <class T>
std::vector<T> read(Bench& b, const T* from, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  b.backend().device().copy(b.stream(), out.data(), from, out.size() * sizeof(T));
  b.sync();
  return out;
}

// All that a boundary writes, one vector a row.
std::vector<std::vector<std::byte>> run(Bench& b, const BoundaryRows& in, const ops::Linear& fn,
                                        const uint16_t* norm, const float* base,
                                        const float* scale) {
  ops::BoundaryArgs a;
  a.n_streams = kStreams;
  a.d_hidden = in.h;
  a.n_rows = a.n_expand = a.n_mix = in.n;
  auto* x = b.put(in.x);
  auto* tap = b.room<uint16_t>(in.n * in.h);
  auto* h = b.room<uint16_t>(in.n * in.h);
  a.streams = x;
  a.y = {b.put(in.y), in.n, in.h};
  a.post = b.put(in.post);
  a.comb = b.put(in.comb);
  a.tap = {tap, in.n, in.h};
  a.pre_in = a.pre = b.put(in.pre);
  a.norm = norm;
  a.h = {h, in.n, in.h};
  a.site = {&fn, base, scale};
  a.sinkhorn_iters = 20;
  a.hc_eps = 1e-6f;
  a.norm_eps = 1e-20f;
  b.ops().boundary(a, b.scratch(), b.stream());
  std::vector<std::vector<std::byte>> out(static_cast<size_t>(in.n));
  const auto add = [&](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    const size_t width = bytes.size() / out.size();
    for (size_t t = 0; t < out.size(); ++t) {
      const auto part = bytes.subspan(t * width, width);
      out[t].insert(out[t].end(), part.begin(), part.end());
    }
  };
  add(read(b, x, in.n * kStreams * in.h));
  add(read(b, tap, in.n * in.h));
  add(read(b, h, in.n * in.h));
  add(read(b, a.pre, in.n * kStreams));
  add(read(b, a.post, in.n * kStreams));
  add(read(b, a.comb, in.n * kStreams * kStreams));
  return out;
}

std::vector<Output> boundary(Bench& b, int64_t h, int32_t n) {
  Draw d(static_cast<uint64_t>(h + n));
  const std::vector<float> fn = d.f32(24 * kStreams * h, 0.02f);
  const auto made = b.ops().make_mix(
      {.format = ops::WeightFormat::kF32, .n = 24, .k = kStreams * h, .weight = fn.data()},
      kStreams);
  HADAL_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
  const BoundaryRows rows = {d.bf16(n * kStreams * h),
                             d.bf16(n * h),
                             d.f32(n * kStreams),
                             d.f32(n * kStreams * kStreams, 0.4f),
                             d.f32(n * kStreams),
                             h,
                             n};
  const auto* norm = b.put(d.bf16(h, 0.3f, 1));
  const auto *base = b.put(d.f32(24)), *scale = b.put(d.f32(3));
  const auto together = run(b, rows, **made, norm, base, scale);
  int32_t n_differ = 0;
  for (const int32_t t : {0, n / 2, n - 1}) {
    const auto alone = run(b, rows.row(t), **made, norm, base, scale);
    n_differ += alone[0] == together[static_cast<size_t>(t)] ? 0 : 1;
  }
  Output out{"rows that differ alone", OutType::kI32, 0, 0, std::vector<std::byte>(4)};
  std::memcpy(out.bytes.data(), &n_differ, 4);
  // The reference is held to it as well: an equal wrong number would pass.
  HADAL_CHECK(n_differ == 0 || b.backend().name() != "cpu", "a row's bits depend on its batch");
  return {out};
}

}  // namespace

std::vector<OpCase> alone_cases() {
  std::vector<OpCase> out;
  for (const auto& [h, n] : {std::pair{5120, 64}, {5120, 17}, {256, 200}, {96, 5}})
    out.push_back(
        {"boundary alone, width " + std::to_string(h) + ", " + std::to_string(n) + " rows",
         [h = h, n = n](Bench& b) { return boundary(b, h, n); }, h * n > 100000});
  return out;
}

}  // namespace hadal::test
