#include <memory>
#include <tuple>

#include "base/core/check.h"
#include "compute/ops/step_batch.h"
#include "conformance/op_cases.h"

namespace hadal::test {
namespace {

using ops::WeightFormat;
using ops::WeightSource;

// A random matrix and the host bytes behind it.
struct HostMatrix {
  std::vector<uint8_t> codes, scale;
  std::vector<uint16_t> bf16;
  std::vector<float> f32;
  WeightSource source;
};

HostMatrix host_matrix(Draw& d, WeightFormat format, int64_t n, int64_t k) {
  HostMatrix m;
  m.source = {.format = format, .n = n, .k = k};
  switch (format) {
    case WeightFormat::kFp8Tile:
      m.codes = d.e4m3(n * k);
      m.scale = d.scales((n + 31) / 32 * ((k + 31) / 32), 117);
      break;
    case WeightFormat::kFp4Row:
      m.codes = d.any_bytes(n * k / 2);
      m.scale = d.scales(n * k / 32, 121);
      break;
    case WeightFormat::kBf16:
      m.bf16 = d.bf16(n * k, 0.1f);
      m.source.weight = m.bf16.data();
      return m;
    case WeightFormat::kF32:
      m.f32 = d.f32(n * k, 0.1f);
      m.source.weight = m.f32.data();
      return m;
  }
  m.source.weight = m.codes.data();
  m.source.scale = m.scale.data();
  return m;
}

template <class T>
std::unique_ptr<T> must(core::Result<std::unique_ptr<T>> result) {
  HADAL_CHECK(result.has_value(), result.has_value() ? "" : result.error().message);
  return std::move(result).value();
}

// `ulps`: of the bf16 result.
std::vector<Output> linear(Bench& b, WeightFormat format, int64_t n, int64_t k, int64_t rows,
                           bool plain, int ulps = 1) {
  Draw d(static_cast<uint64_t>(n + 7 * k + 31 * rows));
  const HostMatrix m = host_matrix(d, format, n, k);
  const WeightSource stack[] = {m.source};
  const auto weight = must(b.ops().make_linear(stack));
  const auto* x = b.put(d.bf16(rows * k));
  auto* y = b.room<uint16_t>(rows * n);
  auto* y32 = b.room<float>(rows * n);
  ops::LinearArgs args;
  args.weight = weight.get();
  args.x = {x, rows, k};
  args.plain_input = plain;
  args.y = {y, rows, n};
  b.ops().linear(args, b.scratch(), b.stream());
  args.y = {};
  args.y_f32 = {y32, rows, n};
  b.ops().linear(args, b.scratch(), b.stream());
  return {b.get("y", OutType::kBf16, ulps, y, rows * n),
          b.get("y f32", OutType::kF32, 64, y32, rows * n)};
}

std::vector<Output> boundary(Bench& b, int32_t c, int64_t h, int32_t rows) {
  Draw d(static_cast<uint64_t>(c * 100 + rows));
  const int64_t m = 2 * c + c * c;
  const HostMatrix fn = host_matrix(d, WeightFormat::kF32, m, c * h);
  const auto packed = must(b.ops().make_mix(fn.source, c));
  auto* x = b.put(d.bf16(rows * c * h));
  auto* post = b.put(d.f32(rows * c));
  auto* comb = b.put(d.f32(rows * c * c, 0.4f));
  auto* pre = b.put(d.f32(rows * c));
  auto* tap = b.room<uint16_t>(rows * h);
  auto* out = b.room<uint16_t>(rows * h);
  ops::BoundaryArgs a;
  a.n_streams = c;
  a.d_hidden = h;
  a.n_rows = a.n_expand = rows;
  a.n_mix = rows - 1;  // a row of which only the input is wanted
  a.streams = x;
  a.y = {b.put(d.bf16(rows * h)), rows, h};
  a.post = post;
  a.comb = comb;
  a.tap = {tap, rows, h};
  a.pre_in = a.pre = pre;
  a.norm = b.put(d.bf16(h, 0.3f, 1));
  a.h = {out, rows, h};
  a.site = {packed.get(), b.put(d.f32(m)), b.put(d.f32(3))};
  a.sinkhorn_iters = 20;
  a.hc_eps = 1e-6f;
  a.norm_eps = 1e-20f;
  b.ops().boundary(a, b.scratch(), b.stream());
  return {b.get("streams", OutType::kBf16, 1, x, rows * c * h),
          b.get("tap", OutType::kBf16, 1, tap, rows * h),
          b.get("h", OutType::kBf16, 2, out, rows * h),
          b.get("pre", OutType::kF32, 256, pre, rows * c),
          b.get("post", OutType::kF32, 256, post, rows * c),
          b.get("comb", OutType::kF32, 1024, comb, rows * c * c)};
}

std::vector<Output> experts(Bench& b, int32_t rows, int32_t top_k, float limit, int ulps = 2) {
  constexpr int64_t kHidden = 128, kInter = 96, kExperts = 9;
  Draw d(static_cast<uint64_t>(rows));
  std::vector<HostMatrix> matrices;
  matrices.reserve(3 * kExperts + 3);
  std::vector<ops::ExpertSource> routed;
  const auto expert = [&](WeightFormat f) {
    ops::ExpertSource e;
    e.w1 = matrices.emplace_back(host_matrix(d, f, kInter, kHidden)).source;
    e.w3 = matrices.emplace_back(host_matrix(d, f, kInter, kHidden)).source;
    e.w2 = matrices.emplace_back(host_matrix(d, f, kHidden, kInter)).source;
    return e;
  };
  for (int64_t e = 0; e < kExperts; ++e) routed.push_back(expert(WeightFormat::kFp4Row));
  const ops::ExpertSource shared = expert(WeightFormat::kFp8Tile);
  const auto packed = must(b.ops().make_experts(routed, shared));
  ops::StepRows step;
  step.n_rows = rows;
  std::vector<uint8_t> image(static_cast<size_t>(rows));
  for (size_t i = 0; i < image.size(); i += 3) image[i] = 1;
  step.image = b.put(image);
  auto* expert_ids = b.room<int32_t>(rows * top_k);
  auto* weight = b.room<float>(rows * top_k);
  ops::RouteArgs r;
  r.rows = &step;
  r.n_rows = rows;
  r.logits = {b.put(d.f32(rows * kExperts, 2)), rows, kExperts};
  r.bias = b.put(d.f32(kExperts));
  r.bias_image = b.put(d.f32(kExperts));
  r.top_k = top_k;
  r.scaling = 1.5f;
  r.expert = {expert_ids, rows, top_k};
  r.weight = {weight, rows, top_k};
  b.ops().route(r, b.stream());
  auto* y = b.room<uint16_t>(rows * kHidden);
  ops::MoeArgs a;
  a.experts = packed.get();
  a.h = {b.put(d.bf16(rows * kHidden)), rows, kHidden};
  a.expert = r.expert;
  a.weight = r.weight;
  a.limit = limit;
  a.y = {y, rows, kHidden};
  b.ops().moe_ffn(a, b.scratch(), b.stream());
  return {b.get("expert", OutType::kI32, 0, expert_ids, rows * top_k),
          b.get("weight", OutType::kF32, 8, weight, rows * top_k),
          b.get("y", OutType::kBf16, ulps, y, rows * kHidden)};
}

std::vector<Output> rows_in_and_out(Bench& b) {
  constexpr int32_t kRows = 11, kStreams = 4, kVocab = 50;
  constexpr int64_t kHidden = 96;
  Draw d(3);
  ops::StepRows step;
  step.n_rows = kRows;
  std::vector<int32_t> ids, positions;
  for (int32_t i = 0; i < kRows; ++i) {
    ids.push_back(static_cast<int32_t>(d.bits() % kVocab));
    positions.push_back(i * 77777);
  }
  step.ids = b.put(ids);
  auto* x = b.room<uint16_t>(kRows * kStreams * kHidden);
  auto* pre = b.room<float>(kRows * kStreams);
  ops::EmbedArgs e;
  e.rows = &step;
  e.table = {b.put(d.bf16(kVocab * kHidden)), kVocab, kHidden};
  e.n_streams = kStreams;
  e.streams = x;
  e.pre = pre;
  b.ops().embed_streams(e, b.stream());
  const std::vector<float> freq = {1.0f, 0.31f, 0.01f, 1e-5f};
  auto* angles = b.room<float>(kRows * 8);
  ops::RopeArgs r;
  r.positions = b.put(positions);
  r.n_rows = kRows;
  r.back = 1;
  r.inv_freq = freq;
  r.out = angles;
  b.ops().rope(r, b.stream());
  auto* last = b.room<uint16_t>(3 * kHidden);
  ops::FinalArgs f;
  f.index = b.put(std::vector<int32_t>{4, 0, 10});
  f.n = 3;
  f.n_streams = kStreams;
  f.d_hidden = kHidden;
  f.streams = x;
  f.pre = b.put(d.f32(kRows * kStreams));
  f.norm = b.put(d.bf16(kHidden, 0.3f, 1));
  f.eps = 1e-20f;
  f.x = {last, 3, kHidden};
  b.ops().final_norm(f, b.stream());
  return {b.get("streams", OutType::kBf16, 0, x, kRows * kStreams * kHidden),
          b.get("pre", OutType::kF32, 0, pre, kRows * kStreams),
          b.get("angles", OutType::kF32, 1, angles, kRows * 8),
          b.get("last", OutType::kBf16, 2, last, 3 * kHidden)};
}

std::vector<Output> gate(Bench& b) {
  constexpr int32_t kRows = 7, kStreams = 3;
  constexpr int64_t kHidden = 160;
  Draw d(5);
  ops::StepRows step;
  step.n_rows = kRows;
  step.image = b.put(std::vector<uint8_t>{0, 0, 1, 0, 0, 0, 0});
  auto* x = b.put(d.bf16(kRows * kStreams * kHidden));
  ops::EngramArgs a;
  a.rows = &step;
  a.n_rows = kRows;
  a.n_streams = kStreams;
  a.d_hidden = kHidden;
  a.kv = {b.put(d.bf16(kRows * (kStreams + 1) * kHidden)), kRows, (kStreams + 1) * kHidden};
  a.q_weight = b.put(d.bf16(kStreams * kHidden, 0.4f, 1));
  a.k_weight = b.put(d.bf16(kStreams * kHidden, 0.4f, 1));
  a.eps = 1e-20f;
  a.streams = x;
  b.ops().engram_apply(a, b.stream());
  return {b.get("streams", OutType::kBf16, 2, x, kRows * kStreams * kHidden)};
}

}  // namespace

std::vector<OpCase> dense_cases() {
  std::vector<OpCase> out;
  const std::pair<const char*, WeightFormat> formats[] = {{"fp8", WeightFormat::kFp8Tile},
                                                          {"fp4", WeightFormat::kFp4Row},
                                                          {"bf16", WeightFormat::kBf16}};
  for (const auto& [name, format] : formats) {
    for (const int64_t rows : {1, 3, 40}) {
      const WeightFormat f = format;
      out.push_back({std::string("linear ") + name + " rows " + std::to_string(rows),
                     [f, rows](Bench& b) { return linear(b, f, 96, 160, rows, false); }});
    }
  }
  // So many that `cuda:fp8` adds in E4M3, with 13 bits behind the leading one, 128 products at a
  // time: 2 units of bf16. In experts it tips codes of the inner values besides: by an eighth of
  // one of the 96 terms of an output, of which the largest are as large as the sum is on average.
  // 12 units were seen.
  for (const auto& [n, k, rows] : {std::tuple{96, 160, 300}, {272, 1056, 391}}) {
    for (const auto& [name, format] : formats) {
      if (format == WeightFormat::kBf16) continue;
      const WeightFormat f = format;
      out.push_back(
          {std::string("linear ") + name + " k " + std::to_string(k) + " many rows",
           [f, n = n, k = k, rows = rows](Bench& b) { return linear(b, f, n, k, rows, false, 2); },
           true});
    }
  }
  out.push_back({"experts more rows than a decode",
                 [](Bench& b) { return experts(b, 300, 3, 2, 16); }, true});
  out.push_back({"linear fp8 with plain input",
                 [](Bench& b) { return linear(b, WeightFormat::kFp8Tile, 64, 96, 5, true); }});
  for (const int32_t c : {2, 3, 4}) {
    for (const int32_t rows : {1, 2, 21})
      out.push_back({"boundary streams " + std::to_string(c) + " rows " + std::to_string(rows),
                     [c, rows](Bench& b) { return boundary(b, c, 128, rows); }});
  }
  // Widths that accelerators cut into parts: whole ones, a short last one, none; few and many rows.
  for (const auto& [h, rows] : {std::pair{5120, 2}, {5120, 40}, {704, 5}, {96, 3}})
    out.push_back({"boundary width " + std::to_string(h) + " rows " + std::to_string(rows),
                   [h = h, rows = rows](Bench& b) { return boundary(b, 4, h, rows); }});
  out.push_back({"experts one row", [](Bench& b) { return experts(b, 1, 3, 10); }});
  out.push_back({"experts many rows", [](Bench& b) { return experts(b, 50, 3, 2); }});
  out.push_back({"experts without clamp", [](Bench& b) { return experts(b, 6, 2, 0); }});
  out.push_back({"embed, rope, final norm", rows_in_and_out});
  out.push_back({"engram gate", gate});
  return out;
}

}  // namespace hadal::test
