// Checks the matrix products of the CUDA backend against sums in f64 and times them. Needs a GPU
// and nothing of the source tree:  dense_check small | check | time [rows] | all
// (small: odd shapes only, for the memory checker; rows: the most that are timed)
#include <cstdlib>

#include "dense_rig.h"
#include "dense_time.h"

namespace hadal::cuda {
namespace {

// One linear on `rows` rows of x (bf16 or f32 out).
template <class Out>
std::vector<Out> run_linear(const ops::Linear& w, const std::vector<uint16_t>& x, int64_t rows,
                            int64_t columns, int64_t n_out, bool plain, const Gpu& gpu) {
  const OnDevice<uint16_t> dx(std::vector<uint16_t>(x.begin(), x.begin() + rows * columns));
  const OnDevice<Out> y(static_cast<size_t>(rows * n_out));
  const Scratch scratch(
      linear_scratch_bytes({.max_rows = static_cast<int32_t>(rows), .widest_k = columns}));
  ops::LinearArgs args;
  args.weight = &w;
  args.x = {dx.get(), rows, columns};
  args.plain_input = plain;
  if constexpr (sizeof(Out) == 4)
    args.y_f32 = {y.get(), rows, n_out};
  else
    args.y = {y.get(), rows, n_out};
  launch_linear(args, scratch, gpu, nullptr);
  cuda_ok(cudaGetLastError(), "launch");
  cuda_ok(cudaDeviceSynchronize(), "linear");
  return y.host();
}

template <class T>
bool same_row(const std::vector<T>& a, int64_t ra, const std::vector<T>& b, int64_t rb, int64_t n) {
  return std::memcmp(&a[static_cast<size_t>(ra * n)], &b[static_cast<size_t>(rb * n)],
                     static_cast<size_t>(n) * sizeof(T)) == 0;
}

// Values within the bound of tests on sampled places; bits equal in launches of every size.
void check_linear(WeightFormat format, std::vector<int64_t> pieces, int64_t k, int32_t groups,
                  bool plain, const Gpu& gpu, int top = 124, int max_rows = 300) {
  int64_t n = 0;
  std::vector<HostMatrix> matrices;
  std::vector<ops::WeightSource> stack;
  for (const int64_t p : pieces) {
    matrices.emplace_back(format, p, k, static_cast<uint32_t>(7 * p + k), top);
    n += p;
  }
  for (const auto& m : matrices) stack.push_back(m.source);
  auto made = groups > 1 ? make_grouped(stack[0], groups) : make_linear(stack);
  const std::string what = std::string(name_of(format)) + " " + std::to_string(n) + "x" +
                           std::to_string(k) + " groups " + std::to_string(groups);
  if (!made) {
    require(false, what + ": " + made.error().message);
    return;
  }
  const ops::Linear& w = **made;
  const int64_t columns = k * groups;
  const std::vector<uint16_t> x = random_rows(max_rows * columns, 11);
  const bool quantises =
      (format == WeightFormat::kFp8Tile || format == WeightFormat::kFp4Row) && !plain;
  const std::vector<uint16_t> seen = quantises ? snapped(x) : x;
  const std::vector<float> y = run_linear<float>(w, x, max_rows, columns, n, plain, gpu);
  const std::vector<uint16_t> yb = run_linear<uint16_t>(w, x, max_rows, columns, n, plain, gpu);
  std::atomic<int> bad{0};
  std::atomic<int64_t> worst{0};  // in 1e-3 of the bound
  parallel(2000, [&](int64_t sample) {
    std::mt19937 random(static_cast<uint32_t>(sample));
    const int64_t row =
        sample < 100 ? sample % max_rows : random() % static_cast<uint32_t>(max_rows);
    const int64_t column = sample < 64 ? std::min<int64_t>(sample, n - 1)
                           : sample < 128
                               ? std::max<int64_t>(0, n - 1 - (sample - 64))
                               : static_cast<int64_t>(random() % static_cast<uint32_t>(n));
    int64_t piece = 0, at = column;
    while (groups == 1 && at >= pieces[static_cast<size_t>(piece)])
      at -= pieces[static_cast<size_t>(piece++)];
    const int64_t group = groups > 1 ? column / (n / groups) : 0;
    const Sum s = dot(matrices[static_cast<size_t>(piece)], at,
                      &seen[static_cast<size_t>(row * columns + group * k)]);
    const float got = y[static_cast<size_t>(row * n + column)];
    const double bound = s.magnitude * std::ldexp(static_cast<double>(k), -24) / 8 + 1e-30;
    const double error = std::fabs(got - s.value);
    if (!(error <= bound)) ++bad;
    const auto share = static_cast<int64_t>(1000 * error / bound);
    int64_t seen_worst = worst;
    while (share > seen_worst && !worst.compare_exchange_weak(seen_worst, share)) {
    }
    if (bf16_from_float(got) != yb[static_cast<size_t>(row * n + column)]) ++bad;
  });
  require(bad == 0, what + ": " + std::to_string(bad) + " values off");
  bool same = true;
  for (const int64_t rows : {1, 3, 7, 8, 9, 16, 17, 33, 64, 100, 129, 257}) {
    if (rows > max_rows) continue;
    const std::vector<uint16_t> part = run_linear<uint16_t>(w, x, rows, columns, n, plain, gpu);
    for (int64_t r = 0; r < rows; ++r) same = same && same_row(part, r, yb, r, n);
  }
  // A row at another place.
  std::vector<uint16_t> moved(x.end() - 5 * columns, x.end());
  const std::vector<uint16_t> part = run_linear<uint16_t>(w, moved, 5, columns, n, plain, gpu);
  for (int64_t r = 0; r < 5; ++r) same = same && same_row(part, r, yb, max_rows - 5 + r, n);
  require(same, what + ": a row's bits depend on its launch");
  std::printf("%-34s worst error %.3f of the bound, bits %s\n", what.c_str(),
              static_cast<double>(worst) / 1000, same ? "same" : "DIFFER");
}

// Rows of launches of hundreds and thousands, drawn at random, have the bits that they have in
// launches of a few.
void check_many_rows(WeightFormat format, int64_t n, int64_t k, int32_t groups,
                     std::vector<int64_t> row_counts, const Gpu& gpu) {
  const HostMatrix matrix(format, n, k, static_cast<uint32_t>(n + k));
  const auto made =
      groups > 1 ? make_grouped(matrix.source, groups) : make_linear({&matrix.source, 1});
  const std::string what = std::string(name_of(format)) + " " + std::to_string(n) + "x" +
                           std::to_string(k) + " groups " + std::to_string(groups) + ", many rows";
  if (!made) {
    require(false, what + ": " + made.error().message);
    return;
  }
  const int64_t columns = k * groups,
                most = *std::max_element(row_counts.begin(), row_counts.end());
  const std::vector<uint16_t> x = random_rows(most * columns, 12);
  std::mt19937 random(6);
  bool same = true;
  for (const int64_t rows : row_counts) {
    const std::vector<uint16_t> y =
        run_linear<uint16_t>(**made, x, rows, columns, n, groups > 1, gpu);
    const std::vector<float> yf = run_linear<float>(**made, x, rows, columns, n, groups > 1, gpu);
    for (const int64_t few : {6, 70}) {
      std::vector<int64_t> drawn = {0, rows - 1};  // the ends, and any others
      while (static_cast<int64_t>(drawn.size()) < few)
        drawn.push_back(random() % static_cast<uint32_t>(rows));
      std::vector<uint16_t> part;
      for (const int64_t r : drawn)
        part.insert(part.end(), x.begin() + r * columns, x.begin() + (r + 1) * columns);
      const auto z = run_linear<uint16_t>(**made, part, few, columns, n, groups > 1, gpu);
      const auto zf = run_linear<float>(**made, part, few, columns, n, groups > 1, gpu);
      for (int64_t i = 0; i < few; ++i) {
        const int64_t r = drawn[static_cast<size_t>(i)];
        same = same && same_row(z, i, y, r, n) && same_row(zf, i, yf, r, n);
      }
    }
  }
  require(same, what + ": a row's bits depend on its launch");
  std::printf("%-46s bits %s\n", what.c_str(), same ? "same" : "DIFFER");
}

// The output of one expert for one row; also how far rounding may move it.
void expert_reference(const HostExpert& e, const std::vector<uint16_t>& x, float weight,
                      float limit, std::vector<double>& y, std::vector<double>& slack) {
  const int64_t inter = e.w1.source.n, hidden = e.w2.source.n;
  std::vector<uint16_t> a(static_cast<size_t>(inter));
  std::vector<double> loose(static_cast<size_t>(inter));
  for (int64_t i = 0; i < inter; ++i) {
    float g = bf16_to_float(bf16_from_float(static_cast<float>(dot(e.w1, i, x.data()).value)));
    float u = bf16_to_float(bf16_from_float(static_cast<float>(dot(e.w3, i, x.data()).value)));
    if (limit > 0) {
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
    }
    const auto ex = static_cast<float>(std::exp(-static_cast<double>(g)));
    a[static_cast<size_t>(i)] = bf16_from_float(g / (1.0f + ex) * u * weight);
  }
  a = snapped(a);
  for (int64_t c = 0; c < hidden; ++c) {
    const Sum s = dot(e.w2, c, a.data());
    y[static_cast<size_t>(c)] += bf16_to_float(bf16_from_float(static_cast<float>(s.value)));
    // Rounding flips of single activations: 1/16 of a few terms.
    slack[static_cast<size_t>(c)] +=
        std::fabs(s.value) / 128 + s.magnitude / std::sqrt(static_cast<double>(inter)) / 64;
  }
}

std::vector<uint16_t> run_moe(const ops::Experts& experts, const std::vector<uint16_t>& h,
                              const std::vector<int32_t>& ids, const std::vector<float>& weights,
                              int64_t rows, int64_t hidden, int64_t inter, int64_t top_k,
                              float limit, const Gpu& gpu) {
  const OnDevice<uint16_t> dh(h);
  const OnDevice<int32_t> di(ids);
  const OnDevice<float> dw(weights);
  const OnDevice<uint16_t> y(static_cast<size_t>(rows * hidden));
  const Scratch scratch(moe_ffn_scratch_bytes({.max_rows = static_cast<int32_t>(rows),
                                               .top_k = static_cast<int32_t>(top_k),
                                               .d_inter = inter,
                                               .d_hidden = hidden}));
  ops::MoeArgs args;
  args.experts = &experts;
  args.h = {dh.get(), rows, hidden};
  args.expert = {di.get(), rows, top_k};
  args.weight = {dw.get(), rows, top_k};
  args.limit = limit;
  args.y = {y.get(), rows, hidden};
  launch_moe_ffn(args, scratch, gpu, nullptr);
  cuda_ok(cudaGetLastError(), "launch");
  cuda_ok(cudaDeviceSynchronize(), "moe_ffn");
  return y.host();
}

void check_moe(WeightFormat routed, WeightFormat shared, int64_t n_experts, int64_t top_k,
               int64_t hidden, int64_t inter, int64_t max_rows, int n_checked, const Gpu& gpu) {
  std::vector<HostExpert> experts;
  for (int64_t e = 0; e < n_experts; ++e)
    experts.emplace_back(routed, inter, hidden, static_cast<uint32_t>(100 + 10 * e));
  const HostExpert common(shared, inter, hidden, 3);
  std::vector<ops::ExpertSource> sources;
  for (const auto& e : experts) sources.push_back(e.source());
  auto made = make_experts(sources, common.source());
  const std::string what = "moe " + std::to_string(n_experts) + "x" + std::to_string(inter) + "x" +
                           std::to_string(hidden) + " top " + std::to_string(top_k);
  if (!made) {
    require(false, what + ": " + made.error().message);
    return;
  }
  const std::vector<uint16_t> h = random_rows(max_rows * hidden, 5);
  std::mt19937 random(4);
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int64_t t = 0; t < max_rows; ++t) {
    std::vector<int32_t> all(static_cast<size_t>(n_experts));
    for (int32_t e = 0; e < n_experts; ++e) all[static_cast<size_t>(e)] = e;
    std::shuffle(all.begin(), all.end(), random);
    // Skewed: half of the rows take expert 0.
    if (t % 2 == 0) std::swap(all[0], *std::find(all.begin(), all.end(), 0));
    std::sort(all.begin(), all.begin() + top_k);
    for (int64_t j = 0; j < top_k; ++j) {
      ids.push_back(all[static_cast<size_t>(j)]);
      weights.push_back(static_cast<float>(random() % 1000 + 1) / 1500.0f);
    }
  }
  const std::vector<uint16_t> y =
      run_moe(**made, h, ids, weights, max_rows, hidden, inter, top_k, 10, gpu);
  std::atomic<int> bad{0};
  std::vector<double> rel(static_cast<size_t>(n_checked));
  parallel(n_checked, [&](int64_t i) {
    const int64_t t = i * (max_rows - 1) / std::max(1, n_checked - 1);
    std::vector<uint16_t> x(h.begin() + t * hidden, h.begin() + (t + 1) * hidden);
    x = snapped(x);
    std::vector<double> want(static_cast<size_t>(hidden)), slack(static_cast<size_t>(hidden));
    for (int64_t j = 0; j < top_k; ++j)
      expert_reference(experts[static_cast<size_t>(ids[static_cast<size_t>(t * top_k + j)])], x,
                       weights[static_cast<size_t>(t * top_k + j)], 10, want, slack);
    expert_reference(common, x, 1, 10, want, slack);
    double top = 0, bottom = 0;
    for (int64_t c = 0; c < hidden; ++c) {
      const double got = bf16_to_float(y[static_cast<size_t>(t * hidden + c)]);
      const double error = std::fabs(got - want[static_cast<size_t>(c)]);
      if (!(error <= slack[static_cast<size_t>(c)] + 1e-6)) ++bad;
      top += error * error;
      bottom += want[static_cast<size_t>(c)] * want[static_cast<size_t>(c)];
    }
    rel[static_cast<size_t>(i)] = std::sqrt(top / bottom);
  });
  const double worst = *std::max_element(rel.begin(), rel.end());
  require(bad == 0 && worst < 5e-3,
          what + ": " + std::to_string(bad) + " values off, relative " + std::to_string(worst));
  bool same = true;
  for (const int64_t rows : {1, 2, 5, 8, 9, 40, 64, 200}) {
    if (rows > max_rows) continue;
    const std::vector<uint16_t> part =
        run_moe(**made, std::vector<uint16_t>(h.begin(), h.begin() + rows * hidden),
                std::vector<int32_t>(ids.begin(), ids.begin() + rows * top_k),
                std::vector<float>(weights.begin(), weights.begin() + rows * top_k), rows, hidden,
                inter, top_k, 10, gpu);
    for (int64_t r = 0; r < rows; ++r) same = same && same_row(part, r, y, r, hidden);
  }
  for (int64_t t = max_rows - 1; t > max_rows - 3; --t) {
    const std::vector<uint16_t> part =
        run_moe(**made, std::vector<uint16_t>(h.begin() + t * hidden, h.begin() + (t + 1) * hidden),
                std::vector<int32_t>(ids.begin() + t * top_k, ids.begin() + (t + 1) * top_k),
                std::vector<float>(weights.begin() + t * top_k, weights.begin() + (t + 1) * top_k),
                1, hidden, inter, top_k, 10, gpu);
    same = same && same_row(part, 0, y, t, hidden);
  }
  require(same, what + ": a row's bits depend on its launch");
  std::printf("%-34s relative error %.2e, bits %s\n", what.c_str(), worst,
              same ? "same" : "DIFFER");
}

void check_all(const Gpu& gpu, bool small) {
  const auto fp8 = WeightFormat::kFp8Tile, fp4 = WeightFormat::kFp4Row, bf16 = WeightFormat::kBf16,
             f32 = WeightFormat::kF32;
  check_linear(fp8, {48, 16, 7}, 96, 1, false, gpu, 124, 40);
  check_linear(bf16, {5, 3}, 50, 1, false, gpu, 124, 40);
  check_linear(bf16, {24}, 33, 1, false, gpu, 124, 40);
  check_linear(f32, {16, 3}, 77, 1, false, gpu, 124, 40);
  check_linear(fp4, {40}, 64, 1, false, gpu, 124, 40);
  check_linear(fp4, {33, 15}, 288, 1, false, gpu, 200, 40);
  check_linear(fp8, {64}, 32, 2, true, gpu, 124, 40);
  check_linear(bf16, {48}, 64, 2, true, gpu, 124, 40);
  check_moe(fp4, fp8, 8, 2, 256, 128, 70, 8, gpu);
  check_moe(fp4, fp8, 5, 3, 96, 32, 40, 8, gpu);
  // More rows than lists takes, in tiles of several classes.
  check_moe(fp4, fp8, 8, 2, 256, 128, 1100, 8, gpu);
  check_moe(fp4, fp8, 5, 3, 96, 32, 1060, 8, gpu);
  check_moe(bf16, bf16, 4, 1, 64, 96, 20, 8, gpu);
  if (small) return;
  check_linear(fp8, {1280, 512}, 5120, 1, false, gpu);
  check_linear(fp8, {4096}, 1280, 1, false, gpu);
  check_linear(fp8, {5120}, 8192, 1, false, gpu);
  check_linear(fp8, {2048}, 6144, 1, false, gpu);
  check_linear(fp8, {8192}, 4096, 8, true, gpu, 124, 130);
  check_linear(bf16, {384}, 5120, 1, false, gpu);
  check_linear(bf16, {512, 512}, 5120, 1, false, gpu);
  check_linear(bf16, {4000}, 5120, 1, false, gpu);
  check_linear(fp4, {4608}, 5120, 1, false, gpu);
  check_linear(fp4, {5120}, 2304, 1, false, gpu);
  check_linear(fp8, {1024}, 256, 1, false, gpu);
  check_many_rows(fp8, 1792, 5120, 1, {512, 700, 8192}, gpu);
  check_many_rows(fp8, 4096, 1280, 1, {513, 2048}, gpu);
  check_many_rows(fp8, 2048, 4096, 8, {1000}, gpu);
  check_many_rows(fp8, 640, 8192, 1, {3000}, gpu);
  check_many_rows(fp8, 71, 96, 1, {999}, gpu);
  check_many_rows(bf16, 384, 5120, 1, {512, 8192}, gpu);
  check_many_rows(bf16, 4003, 333, 1, {257, 600}, gpu);
  check_moe(fp4, fp8, 12, 6, 5120, 2304, 260, 4, gpu);
}

}  // namespace
}  // namespace hadal::cuda

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  const hadal::cuda::Gpu gpu = hadal::cuda::this_gpu();
  if (what == "profile") {
    hadal::cuda::profile(gpu);
    return 0;
  }
  if (what != "time") hadal::cuda::check_all(gpu, what == "small");
  if (what == "time" || what == "all")
    hadal::cuda::time_all(gpu, argc > 2 ? std::atoll(argv[2]) : 8192);
  std::printf("%s\n", hadal::cuda::n_failed == 0 ? "all checks passed" : "CHECKS FAILED");
  return hadal::cuda::n_failed == 0 ? 0 : 1;
}
