// Checks the E4M3 products of `cuda:fp8` against sums in f64 and against the parity kernels, and
// times both side by side. Needs a GPU and nothing of the source tree:
//   fp8_check small | check | time | all
// (small: odd shapes only, for the memory checker)
#include <cstdlib>

#include "compute/backends/cuda/big_list_fp8.h"
#include "compute/backends/cuda/fp8_rows.h"
#include "dense_rig.h"
#include "dense_time.h"

namespace hadal::cuda {
namespace {

// Of the sum of all products' magnitudes. The tensor cores keep 13 bits behind the leading one of
// the largest term and cut the rest, in each of four steps a window; codes that lose bits to a
// window's power lose 2^-10 of 448 at most.
constexpr double kAdderBound = 0x1p-12;

Gpu with(const Gpu& gpu, bool fp8) {
  Gpu out = gpu;
  out.fp8_products = fp8;
  return out;
}

// In E4M3 whether that pays or not, or by the parity kernels.
void launch(const ops::Linear& w, const uint16_t* x, uint16_t* y, int64_t rows, int64_t k,
            int64_t n, const Scratch& scratch, const Gpu& gpu, cudaStream_t stream) {
  if (gpu.fp8_products) {
    const Packed& weight = static_cast<const CudaLinear&>(w).packed();
    require(fp8_fits(weight, rows, gpu), "a product that fits");
    // As dispatch.cu cuts the rows of one expert.
    const TileCut cut(static_cast<int32_t>(rows), kFp8TileRows);
    std::vector<RowTile> tiles;
    for (int32_t i = 0; i < cut.n_tiles; ++i) tiles.push_back({0, cut.first(i), cut.rows(i)});
    std::vector<int32_t> class_ends(kTileClasses, 0);
    for (int c = tile_class(cut.most_rows()); c < kTileClasses; ++c)
      class_ends[static_cast<size_t>(c)] = cut.n_tiles;
    const OnDevice<RowTile> list(tiles);
    const OnDevice<int32_t> ends(class_ends);
    uint8_t* tiled = scratch.bytes.get();
    launch_fp8_rows({x, rows, k}, nullptr, rows, tiled, stream);
    launch_big_list_fp8({.weight = &weight,
                         .x = tiled,
                         .x_rows = rows,
                         .tiles = list.get(),
                         .class_ends = ends.get(),
                         .max_tiles = cut.n_tiles,
                         .y = y,
                         .y_stride = n},
                        gpu, stream);
    cuda_ok(cudaDeviceSynchronize(), "a list's product");  // before the list goes
    return;
  }
  ops::LinearArgs args;
  args.weight = &w;
  args.x = {x, rows, k};
  args.y = {y, rows, n};
  launch_linear(args, scratch, gpu, stream);
}

std::vector<uint16_t> run_linear(const ops::Linear& w, const std::vector<uint16_t>& x, int64_t rows,
                                 int64_t k, int64_t n, const Gpu& gpu) {
  const OnDevice<uint16_t> dx(x);
  const OnDevice<uint16_t> y(static_cast<size_t>(rows * n));
  const Scratch scratch(
      linear_scratch_bytes({.max_rows = static_cast<int32_t>(rows), .widest_k = k}));
  launch(w, dx.get(), y.get(), rows, k, n, scratch, gpu, nullptr);
  cuda_ok(cudaGetLastError(), "launch");
  cuda_ok(cudaDeviceSynchronize(), "linear");
  return y.host();
}

std::vector<uint16_t> rows_of(const std::vector<uint16_t>& x, int64_t first, int64_t n, int64_t k) {
  return {x.begin() + first * k, x.begin() + (first + n) * k};
}

double distance(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  double top = 0, bottom = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double want = bf16_to_float(b[i]), d = bf16_to_float(a[i]) - want;
    top += d * d;
    bottom += want * want;
  }
  return std::sqrt(top / bottom);
}

// Values of sampled places against f64; a row's bits in launches of other sizes, at other places.
void check_linear(int64_t n, int64_t k, int64_t rows, int binades, const Gpu& gpu) {
  const HostMatrix matrix(WeightFormat::kFp4Row, n, k, static_cast<uint32_t>(7 * n + k), 124,
                          binades);
  const auto made = make_linear({&matrix.source, 1});
  const std::string what = "fp4 " + std::to_string(n) + "x" + std::to_string(k) + " rows " +
                           std::to_string(rows) + " binades " + std::to_string(binades);
  if (!made) return require(false, what + ": " + made.error().message);
  const std::vector<uint16_t> x = random_rows(rows * k, 11), seen = snapped(x);
  const std::vector<uint16_t> y = run_linear(**made, x, rows, k, n, with(gpu, true));
  const std::vector<uint16_t> parity = run_linear(**made, x, rows, k, n, with(gpu, false));
  std::atomic<int> bad{0};
  std::atomic<int64_t> worst{0};  // in 1e-3 of the bound
  parallel(2000, [&](int64_t sample) {
    std::mt19937 random(static_cast<uint32_t>(sample));
    const int64_t row = sample < rows ? sample : random() % static_cast<uint32_t>(rows);
    const int64_t column = sample < 64 ? std::min<int64_t>(sample, n - 1)
                                       : static_cast<int64_t>(random() % static_cast<uint32_t>(n));
    const Sum s = dot(matrix, column, &seen[static_cast<size_t>(row * k)]);
    const double got = bf16_to_float(y[static_cast<size_t>(row * n + column)]);
    const double bound = s.magnitude * kAdderBound + std::fabs(s.value) / 256 + 1e-30;
    const double error = std::fabs(got - s.value);
    if (!(error <= bound)) ++bad;
    const auto share = static_cast<int64_t>(1000 * error / bound);
    int64_t seen_worst = worst;
    while (share > seen_worst && !worst.compare_exchange_weak(seen_worst, share)) {
    }
  });
  require(bad == 0, what + ": " + std::to_string(bad) + " values off");
  bool same = true;
  for (const int64_t part : {257, 264, 300, 391, 513, 700}) {
    if (part > rows) continue;
    const int64_t first = rows - part;
    const auto z = run_linear(**made, rows_of(x, first, part, k), part, k, n, with(gpu, true));
    same = same && std::memcmp(z.data(), &y[static_cast<size_t>(first * n)], z.size() * 2) == 0;
  }
  require(same, what + ": a row's bits depend on its launch");
  std::printf("%-38s worst %.3f of the bound, off parity by %.2e, bits %s\n", what.c_str(),
              static_cast<double>(worst) / 1000, distance(y, parity), same ? "same" : "DIFFER");
}

// Drawn quickly: a million values again and again.
std::vector<uint16_t> many_rows(int64_t n) {
  const std::vector<uint16_t> drawn = random_rows(std::min<int64_t>(n, 1000003), 3);
  std::vector<uint16_t> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = drawn[i % drawn.size()];
  return x;
}

struct MoeCase {
  std::unique_ptr<ops::Experts> experts;
  int64_t n_experts, top_k, hidden, inter;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  std::vector<uint16_t> h;
  int64_t rows;

  MoeCase(int64_t experts_, int64_t top, int64_t d_hidden, int64_t d_inter, int64_t n, bool skewed)
      : n_experts(experts_), top_k(top), hidden(d_hidden), inter(d_inter), rows(n) {
    std::vector<HostExpert> kinds;
    for (uint32_t i = 0; i < 3; ++i)
      kinds.emplace_back(WeightFormat::kFp4Row, inter, hidden, 50 + 10 * i);
    const HostExpert shared(WeightFormat::kFp8Tile, inter, hidden, 9);
    std::vector<ops::ExpertSource> sources;
    for (int64_t e = 0; e < n_experts; ++e)
      sources.push_back(kinds[static_cast<size_t>(e % 3)].source());
    experts = std::move(make_experts(sources, shared.source()).value());
    std::mt19937 random(8);
    for (int64_t t = 0; t < rows; ++t) {
      std::vector<int32_t> row;
      if (skewed && t % 2 == 0) row.push_back(0);
      while (static_cast<int64_t>(row.size()) < top_k) {
        const auto e = static_cast<int32_t>(random() % static_cast<uint32_t>(n_experts));
        if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
      }
      std::sort(row.begin(), row.end());
      for (const int32_t e : row) {
        ids.push_back(e);
        weights.push_back(static_cast<float>(random() % 1000 + 1) / 1500.0f);
      }
    }
    h = many_rows(rows * hidden);
  }

  std::vector<uint16_t> run(int64_t first, int64_t n, const Gpu& gpu) const {
    const OnDevice<uint16_t> dh(rows_of(h, first, n, hidden));
    const OnDevice<int32_t> di(
        std::vector<int32_t>(ids.begin() + first * top_k, ids.begin() + (first + n) * top_k));
    const OnDevice<float> dw(
        std::vector<float>(weights.begin() + first * top_k, weights.begin() + (first + n) * top_k));
    const OnDevice<uint16_t> y(static_cast<size_t>(n * hidden));
    const Scratch scratch(moe_ffn_scratch_bytes(limits(n)));
    launch_moe_ffn(args(dh, di, dw, y, n), scratch, gpu, nullptr);
    cuda_ok(cudaGetLastError(), "launch");
    cuda_ok(cudaDeviceSynchronize(), "moe_ffn");
    return y.host();
  }
  ops::Ops::Limits limits(int64_t n) const {
    return {.max_rows = static_cast<int32_t>(n),
            .top_k = static_cast<int32_t>(top_k),
            .d_inter = inter,
            .d_hidden = hidden};
  }
  ops::MoeArgs args(const OnDevice<uint16_t>& x, const OnDevice<int32_t>& id,
                    const OnDevice<float>& w, const OnDevice<uint16_t>& y, int64_t n) const {
    ops::MoeArgs a;
    a.experts = experts.get();
    a.h = {x.get(), n, hidden};
    a.expert = {id.get(), n, top_k};
    a.weight = {w.get(), n, top_k};
    a.limit = 10;
    a.y = {y.get(), n, hidden};
    return a;
  }
};

// The parity kernels are the judge: dense_check holds them to f64.
void check_moe(int64_t n_experts, int64_t top_k, int64_t hidden, int64_t inter, int64_t rows,
               const Gpu& gpu) {
  const MoeCase c(n_experts, top_k, hidden, inter, rows, true);
  const std::string what = "moe " + std::to_string(n_experts) + "x" + std::to_string(inter) + "x" +
                           std::to_string(hidden) + " rows " + std::to_string(rows);
  const auto y = c.run(0, rows, with(gpu, true)), parity = c.run(0, rows, with(gpu, false));
  const double off = distance(y, parity);
  require(off > 0 && off < 1e-2, what + ": off parity by " + std::to_string(off));
  bool same = true;
  for (const int64_t part : {300, 391, 600}) {
    if (part > rows || !fp8_experts_pay(part, top_k, n_experts)) continue;
    const auto z = c.run(rows - part, part, with(gpu, true));
    same = same && std::memcmp(z.data(), &y[static_cast<size_t>((rows - part) * hidden)],
                               z.size() * 2) == 0;
  }
  require(same, what + ": a row's bits depend on its launch");
  std::printf("%-38s off parity by %.2e, bits %s\n", what.c_str(), off, same ? "same" : "DIFFER");
}

void time_moe(int64_t n_experts, int64_t top_k, std::vector<int64_t> counts, const Gpu& gpu) {
  const MoeCase c(n_experts, top_k, 5120, 2304, counts.back(), false);
  const OnDevice<uint16_t> h(c.h), y(c.h.size());
  const OnDevice<int32_t> ids(c.ids);
  const OnDevice<float> w(c.weights);
  const Scratch scratch(moe_ffn_scratch_bytes(c.limits(counts.back())));
  const double size = static_cast<double>(c.inter * c.hidden);
  for (const int64_t rows : counts) {
    for (const bool fp8 : {false, true}) {
      const double us = time_us(2, [&](int, cudaStream_t s) {
        launch_moe_ffn(c.args(h, ids, w, y, rows), scratch, with(gpu, fp8), s);
      });
      report("moe " + std::to_string(n_experts) + " experts + shared" + (fp8 ? " fp8" : ""), rows,
             us, 3 * size * (static_cast<double>(n_experts) * (0.5 + 1.0 / 32) + 1),
             6.0 * static_cast<double>(rows * (top_k + 1)) * size);
    }
  }
}

void time_rows(int64_t rows, int64_t k) {
  const OnDevice<uint16_t> x(many_rows(rows * k));
  const OnDevice<uint8_t> out(static_cast<size_t>(fp8_row_bytes(rows, k)));
  const double us = time_us(8, [&](int, cudaStream_t s) {
    launch_fp8_rows({x.get(), rows, k}, nullptr, rows, out.get(), s);
  });
  report("rows to E4M3, of " + std::to_string(k), rows, us, static_cast<double>(rows * k * 3), 0);
}

void check_fp8(const Gpu& gpu, bool small) {
  check_linear(48, 96, 260, 10, gpu);
  check_linear(272, 288, 391, 15, gpu);
  check_moe(9, 3, 128, 96, 700, gpu);
  check_moe(5, 2, 288, 160, 601, gpu);
  if (small) return;
  check_linear(4608, 5120, 700, 10, gpu);
  check_linear(5120, 2304, 391, 10, gpu);
  check_linear(1792, 1280, 2100, 1, gpu);
  check_moe(12, 6, 5120, 2304, 700, gpu);
}

void time_fp8(const Gpu& gpu) {
  time_rows(8192, 5120);
  time_moe(384, 6, {8192}, gpu);
  time_moe(48, 6, {2048, 8192}, gpu);
}

}  // namespace
}  // namespace hadal::cuda

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  const hadal::cuda::Gpu gpu = hadal::cuda::this_gpu();
  if (what != "time") hadal::cuda::check_fp8(gpu, what == "small");
  if (what == "time" || what == "all") hadal::cuda::time_fp8(gpu);
  std::printf("%s\n", hadal::cuda::n_failed == 0 ? "all checks passed" : "CHECKS FAILED");
  return hadal::cuda::n_failed == 0 ? 0 : 1;
}
