#include <string>

#include "compute/ops/kv_layout.h"
#include "conformance/op_cases.h"

// Ops that go through one row at a time, of released and of odd sizes: to the bit on every backend.
namespace hadal::test {
namespace {

// Logits of all sizes, many of them equal, so that the lower expert has to win.
std::vector<Output> route(Bench& b, int32_t rows, int32_t n_experts, int32_t top_k,
                          bool normalise) {
  Draw d(static_cast<uint64_t>(n_experts * 100 + top_k));
  std::vector<float> logits = d.f32(int64_t{rows} * n_experts, 2);
  for (size_t i = 0; i < logits.size(); i += 7) logits[i] *= 40;
  for (size_t i = 0; i < logits.size(); i += 3) logits[i] = logits[i / 3];
  std::vector<float> bias = d.f32(n_experts, 0.1f);
  for (size_t i = 0; i < bias.size(); i += 3) bias[i] = 0.25f;
  std::vector<uint8_t> image(static_cast<size_t>(rows));
  for (size_t i = 0; i < image.size(); i += 3) image[i] = 1;
  ops::StepRows step;
  step.n_rows = rows;
  step.image = b.put(image);
  ops::RouteArgs a;
  a.rows = &step;
  a.n_rows = rows;
  a.logits = {b.put(logits), rows, n_experts};
  a.bias = b.put(bias);
  a.bias_image = top_k % 2 == 0 ? b.put(d.f32(n_experts, 0.1f)) : nullptr;
  a.top_k = top_k;
  a.normalise = normalise;
  a.scaling = 1.5f;
  auto* expert = b.room<int32_t>(rows * top_k);
  auto* weight = b.room<float>(rows * top_k);
  a.expert = {expert, rows, top_k};
  a.weight = {weight, rows, top_k};
  b.ops().route(a, b.stream());
  return {b.get("expert", OutType::kI32, 0, expert, rows * top_k),
          b.get("weight", OutType::kF32, 0, weight, rows * top_k)};
}

std::vector<Output> final_norm(Bench& b, int32_t n_streams, int64_t h) {
  constexpr int32_t kRows = 5;
  Draw d(static_cast<uint64_t>(h + n_streams));
  auto* last = b.room<uint16_t>(3 * h);
  ops::FinalArgs a;
  a.index = b.put(std::vector<int32_t>{4, 0, 2});
  a.n = 3;
  a.n_streams = n_streams;
  a.d_hidden = h;
  a.streams = b.put(d.bf16(kRows * n_streams * h));
  a.pre = b.put(d.f32(kRows * n_streams));
  a.norm = b.put(d.bf16(h, 0.3f, 1));
  a.eps = 1e-20f;
  a.x = {last, 3, h};
  b.ops().final_norm(a, b.stream());
  return {b.get("last", OutType::kBf16, 0, last, 3 * h)};
}

// Latents as columns of wider rows; `shift` moves them off the places where words begin.
std::vector<Output> latents(Bench& b, int32_t rows, int64_t width, int32_t d_rope, int64_t shift) {
  Draw d(static_cast<uint64_t>(width * 10 + shift));
  const int64_t stride = 3 * width + shift, record = ops::window_record_bytes(width) + shift;
  auto* out = b.put(std::vector<uint8_t>(static_cast<size_t>(rows * record)));
  ops::LatentArgs a;
  a.kv = {b.put(d.bf16(rows * stride)) + 2 * width + shift, rows, width, stride};
  a.norm = b.put(d.bf16(width + shift, 0.3f, 1)) + shift;
  a.eps = 1e-20f;
  a.rope = b.put(d.f32(int64_t{rows} * d_rope, 0.5f));
  a.d_rope = d_rope;
  a.out = {out, rows, record};
  b.ops().latent_write(a, b.stream());
  return {b.get("records", OutType::kBytes, 0, out, rows * record)};
}

}  // namespace

std::vector<OpCase> row_cases() {
  std::vector<OpCase> out;
  struct Route {
    int32_t rows, n_experts, top_k;
    bool normalise;
  };
  for (const Route& r : {Route{33, 384, 6, true},
                         {5, 128, 3, true},
                         {4, 200, 1, true},
                         {3, 2500, 6, true},
                         {2, 40, 32, false}})
    out.push_back({"route " + std::to_string(r.n_experts) + " experts",
                   [r](Bench& b) { return route(b, r.rows, r.n_experts, r.top_k, r.normalise); }});
  for (const auto& [streams, h] : {std::pair{4, 5120}, {4, 96}, {4, 100}, {3, 160}, {4, 8192}})
    out.push_back({"final norm " + std::to_string(streams) + " streams of " + std::to_string(h),
                   [streams = streams, h = h](Bench& b) { return final_norm(b, streams, h); }});
  out.push_back({"latents", [](Bench& b) { return latents(b, 9, 512, 64, 0); }});
  out.push_back({"latents at odd places", [](Bench& b) { return latents(b, 5, 96, 10, 3); }});
  return out;
}

}  // namespace hadal::test
