// Checks the matrix products of the CUDA backend against sums in f64 and times them. Needs a GPU
// and nothing of the source tree:  dense_check small | check | time [rows] | all
// (small: odd shapes only, for the memory checker; rows: the most that are timed)
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/experts.h"
#include "compute/backends/cuda/linear.h"
#include "compute/backends/cuda/out_proj.h"
#include "compute/formats/quantise.h"

namespace hadal::cuda {
namespace {

using formats::bf16_from_float;
using formats::bf16_to_float;
using ops::WeightFormat;

int n_failed = 0;

void require(bool ok, const std::string& what) {
  if (!ok) ++n_failed;
  if (!ok) std::printf("FAILED %s\n", what.c_str());
}
void cuda_ok(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::printf("FAILED %s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

template <class T>
class OnDevice {
 public:
  explicit OnDevice(size_t n) : n_(n) {
    cuda_ok(cudaMalloc(&p_, n * sizeof(T) + 16), "cudaMalloc");
    cuda_ok(cudaMemset(p_, 0xFF, n * sizeof(T) + 16), "cudaMemset");  // poison
  }
  explicit OnDevice(const std::vector<T>& v) : OnDevice(v.size()) {
    cuda_ok(cudaMemcpy(p_, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice), "copy in");
  }
  OnDevice(OnDevice&& o) noexcept : p_(o.p_), n_(o.n_) { o.p_ = nullptr; }
  ~OnDevice() { cudaFree(p_); }
  T* get() const { return static_cast<T*>(p_); }
  std::vector<T> host() const {
    std::vector<T> v(n_);
    cuda_ok(cudaMemcpy(v.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy out");
    return v;
  }

 private:
  void* p_ = nullptr;
  size_t n_;
};

Gpu this_gpu() {
  cudaDeviceProp p;
  cuda_ok(cudaGetDeviceProperties(&p, 0), "properties");
  return {p.multiProcessorCount, p.major, p.minor, p.sharedMemPerBlockOptin,
          static_cast<size_t>(p.l2CacheSize)};
}

void parallel(int64_t n, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (int64_t i = next++; i < n; i = next++) work(i);
    });
  }
}

// A checkpoint matrix with random codes, scales over `binades` below 2^-3, and its values.
struct HostMatrix {
  ops::WeightSource source;
  std::vector<uint8_t> weight, scale;

  HostMatrix(WeightFormat format, int64_t n, int64_t k, uint32_t seed, int top = 124,
             int binades = 10) {
    source.format = format;
    source.n = n;
    source.k = k;
    const int64_t bytes = source_bytes(source);
    weight.resize(static_cast<size_t>(bytes));
    scale.resize(static_cast<size_t>(source_scales(source)));
    parallel((bytes + 65535) / 65536, [&](int64_t part) {
      std::mt19937 random(seed * 977u + static_cast<uint32_t>(part));
      const int64_t begin = part * 65536, end = std::min(bytes, begin + 65536);
      if (format == WeightFormat::kBf16 || format == WeightFormat::kF32) {
        std::normal_distribution<float> normal(0, 0.05f);
        const int64_t size = format == WeightFormat::kBf16 ? 2 : 4;
        for (int64_t i = begin; i < end; i += size) {
          const float v = normal(random);
          const uint16_t b = bf16_from_float(v);
          if (size == 2)
            std::memcpy(&weight[static_cast<size_t>(i)], &b, 2);
          else
            std::memcpy(&weight[static_cast<size_t>(i)], &v, 4);
        }
        return;
      }
      for (int64_t i = begin; i < end; ++i) {
        auto code = static_cast<uint8_t>(random());
        if (format == WeightFormat::kFp8Tile && formats::e4m3_is_nan(code)) code = 0x12;
        weight[static_cast<size_t>(i)] = code;
      }
    });
    std::mt19937 random(seed + 5);
    const int shift = format == WeightFormat::kFp8Tile ? 6 : 0;
    for (auto& s : scale)
      s = static_cast<uint8_t>(top - shift -
                               static_cast<int>(random() % static_cast<uint32_t>(binades)));
    source.weight = weight.data();
    source.scale = scale.empty() ? nullptr : scale.data();
  }

  double at(int64_t row, int64_t i) const {
    const int64_t k = source.k, blocks = (k + 31) / 32;
    switch (source.format) {
      case WeightFormat::kFp4Row:
        return static_cast<double>(formats::nibble_value(
                   &weight[static_cast<size_t>(row * ((k + 1) / 2))], static_cast<int>(i))) *
               formats::e8m0_to_float(scale[static_cast<size_t>(row * blocks + i / 32)]);
      case WeightFormat::kFp8Tile:
        return static_cast<double>(
                   formats::e4m3_to_float(weight[static_cast<size_t>(row * k + i)])) *
               formats::e8m0_to_float(scale[static_cast<size_t>(row / 32 * blocks + i / 32)]);
      case WeightFormat::kBf16: {
        uint16_t b;
        std::memcpy(&b, &weight[static_cast<size_t>(2 * (row * k + i))], 2);
        return bf16_to_float(b);
      }
      case WeightFormat::kF32: {
        float f;
        std::memcpy(&f, &weight[static_cast<size_t>(4 * (row * k + i))], 4);
        return f;
      }
    }
    return 0;
  }
};

std::vector<uint16_t> random_rows(int64_t n, uint32_t seed) {
  std::vector<uint16_t> x(static_cast<size_t>(n));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (auto& v : x) v = bf16_from_float(normal(random) * (random() % 64 == 0 ? 8.0f : 1.0f));
  return x;
}
std::vector<uint16_t> snapped(const std::vector<uint16_t>& x) {
  std::vector<uint16_t> out(x.size());
  formats::aq8_values(x.data(), static_cast<int64_t>(x.size()), out.data());
  return out;
}

struct Sum {
  double value = 0, magnitude = 0;
};
Sum dot(const HostMatrix& w, int64_t row, const uint16_t* x) {
  Sum s;
  for (int64_t i = 0; i < w.source.k; ++i) {
    const double p = w.at(row, i) * bf16_to_float(x[i]);
    s.value += p;
    s.magnitude += std::fabs(p);
  }
  return s;
}

const char* name_of(WeightFormat f) {
  constexpr const char* kNames[] = {"fp8", "fp4", "bf16", "f32"};
  return kNames[static_cast<int>(f)];
}

struct Scratch {
  OnDevice<uint8_t> bytes;
  explicit Scratch(uint64_t n) : bytes(n + 256), size(n) {}
  uint64_t size;
  operator ops::Ops::Scratch() const { return {reinterpret_cast<std::byte*>(bytes.get()), size}; }
};

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

struct HostExpert {
  HostMatrix w1, w3, w2;
  HostExpert(WeightFormat f, int64_t inter, int64_t hidden, uint32_t seed)
      : w1(f, inter, hidden, seed, 122),
        w3(f, inter, hidden, seed + 1, 122),
        w2(f, hidden, inter, seed + 2, 122) {}
  ops::ExpertSource source() const { return {w1.source, w3.source, w2.source}; }
};

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
  check_moe(fp4, fp8, 12, 6, 5120, 2304, 260, 4, gpu);
}

// ---- timing
// --------------------------------------------------------------------------------------

// Microseconds of one launch: the median over graph replays of `launches` calls.
double time_us(int launches, const std::function<void(int, cudaStream_t)>& launch) {
  cudaStream_t stream;
  cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  launch(0, stream);
  cuda_ok(cudaStreamSynchronize(stream), "warm up");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) launch(i, stream);
  cuda_ok(cudaStreamEndCapture(stream, &graph), "end of capture");
  cuda_ok(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t a, b;
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  std::vector<float> times;
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(a, stream);
    cudaGraphLaunch(exec, stream);
    cudaEventRecord(b, stream);
    cuda_ok(cudaStreamSynchronize(stream), "replay");
    float ms = 0;
    cudaEventElapsedTime(&ms, a, b);
    if (i >= 2) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return times[times.size() / 2] * 1000.0 / launches;
}

void report(const std::string& what, int64_t rows, double us, double bytes, double flops) {
  const double by_bytes = bytes / 4.2e6, by_flops = flops / 762e6;
  const double limit = std::max(by_bytes, by_flops);
  std::printf("%-28s rows %5lld  %9.2f us  limit %8.2f  %3.0f%%  %5.2f TB/s %6.1f TFLOP/s\n",
              what.c_str(), static_cast<long long>(rows), us, limit, 100 * limit / us,
              bytes / us / 1e6, flops / us / 1e6);
  std::fflush(stdout);
}

void time_linear(const char* what, WeightFormat format, int64_t n, int64_t k, int32_t groups,
                 bool plain, const std::vector<int64_t>& row_counts, const Gpu& gpu) {
  const HostMatrix m(format, n, k, 1);
  const double bytes = static_cast<double>(source_bytes(m.source) + source_scales(m.source));
  const int copies = std::clamp(static_cast<int>(240e6 / bytes) + 1, 2, 24);
  std::vector<std::unique_ptr<ops::Linear>> weights;
  for (int i = 0; i < copies; ++i) {
    auto made = groups > 1 ? make_grouped(m.source, groups) : make_linear({&m.source, 1});
    weights.push_back(std::move(made.value()));
  }
  const int64_t columns = k * groups, out = n;
  for (const int64_t rows : row_counts) {
    const OnDevice<uint16_t> x(random_rows(rows * columns, 3));
    const OnDevice<uint16_t> y(static_cast<size_t>(rows * out));
    const Scratch scratch(
        linear_scratch_bytes({.max_rows = static_cast<int32_t>(rows), .widest_k = columns}));
    const int launches = rows > 1000 ? copies : copies * std::max(1, 48 / copies);
    const double us = time_us(launches, [&](int i, cudaStream_t s) {
      ops::LinearArgs args;
      args.weight = weights[static_cast<size_t>(i % copies)].get();
      args.x = {x.get(), rows, columns};
      args.plain_input = plain;
      args.y = {y.get(), rows, out};
      launch_linear(args, scratch, gpu, s);
    });
    report(what, rows, us, bytes + static_cast<double>(rows * (columns + out) * 2),
           2.0 * static_cast<double>(rows * n * k));
  }
}

void time_moe(int64_t n_experts, int64_t top_k, const std::vector<int64_t>& row_counts,
              const Gpu& gpu) {
  const int64_t hidden = 5120, inter = 2304;
  std::vector<HostExpert> kinds;
  for (uint32_t i = 0; i < 2; ++i) kinds.emplace_back(WeightFormat::kFp4Row, inter, hidden, 50 + i);
  const HostExpert shared(WeightFormat::kFp8Tile, inter, hidden, 9);
  std::vector<ops::ExpertSource> sources;
  for (int64_t e = 0; e < n_experts; ++e)
    sources.push_back(kinds[static_cast<size_t>(e % 2)].source());
  auto made = make_experts(sources, shared.source());
  if (!made) {
    require(false, made.error().message);
    return;
  }
  const double expert_bytes = 3.0 * static_cast<double>(inter * hidden) * (0.5 + 1.0 / 32),
               shared_bytes = 3.0 * static_cast<double>(inter * hidden);
  for (const int64_t rows : row_counts) {
    const int sets = rows == 1 ? 32 : rows <= 8 ? 8 : 3;
    const OnDevice<uint16_t> h(random_rows(rows * hidden, 3));
    const OnDevice<uint16_t> y(static_cast<size_t>(rows * hidden));
    std::vector<OnDevice<int32_t>> ids;
    std::mt19937 random(8);
    double touched = 0;
    for (int s = 0; s < sets; ++s) {
      std::vector<int32_t> list;
      std::vector<bool> used(static_cast<size_t>(n_experts));
      for (int64_t t = 0; t < rows; ++t) {
        std::vector<int32_t> row;
        while (static_cast<int64_t>(row.size()) < top_k) {
          const auto e = static_cast<int32_t>(random() % static_cast<uint32_t>(n_experts));
          if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
        }
        std::sort(row.begin(), row.end());
        for (const int32_t e : row) used[static_cast<size_t>(e)] = true;
        list.insert(list.end(), row.begin(), row.end());
      }
      touched += static_cast<double>(std::count(used.begin(), used.end(), true));
      ids.emplace_back(list);
    }
    touched /= sets;
    const OnDevice<float> w(std::vector<float>(static_cast<size_t>(rows * top_k), 0.25f));
    const Scratch scratch(moe_ffn_scratch_bytes({.max_rows = static_cast<int32_t>(rows),
                                                 .top_k = static_cast<int32_t>(top_k),
                                                 .d_inter = inter,
                                                 .d_hidden = hidden}));
    const double us = time_us(sets, [&](int i, cudaStream_t s) {
      ops::MoeArgs args;
      args.experts = made.value().get();
      args.h = {h.get(), rows, hidden};
      args.expert = {ids[static_cast<size_t>(i)].get(), rows, top_k};
      args.weight = {w.get(), rows, top_k};
      args.limit = 10;
      args.y = {y.get(), rows, hidden};
      launch_moe_ffn(args, scratch, gpu, s);
    });
    const double bytes = touched * expert_bytes + shared_bytes,
                 flops = 6.0 * static_cast<double>(rows * (top_k + 1) * inter * hidden);
    report("moe " + std::to_string(n_experts) + " experts + shared", rows, us, bytes, flops);
  }
}

// Row counts up to `most`.
void time_all(const Gpu& gpu, int64_t most) {
  const auto upto = [&](std::vector<int64_t> counts) {
    std::erase_if(counts, [&](int64_t n) { return n > most; });
    return counts;
  };
  const auto fp8 = WeightFormat::kFp8Tile, bf16 = WeightFormat::kBf16;
  const std::vector<int64_t> counts = upto({1, 2, 8, 64, 256, 8192});
  time_linear("wq_a+wkv 1792x5120", fp8, 1792, 5120, 1, false, counts, gpu);
  time_linear("wq_b 32768x1280", fp8, 32768, 1280, 1, false, counts, gpu);
  time_linear("wo_a 8x 1024x4096", fp8, 8192, 4096, 8, true, counts, gpu);
  time_linear("wo_b 5120x8192", fp8, 5120, 8192, 1, false, counts, gpu);
  time_linear("engram 25600x6144", fp8, 25600, 6144, 1, false, upto({1, 8, 64, 256}), gpu);
  time_linear("gate 384x5120", bf16, 384, 5120, 1, false, counts, gpu);
  time_linear("compress 1024x5120", bf16, 1024, 5120, 1, false, counts, gpu);
  time_linear("head 129280x5120", bf16, 129280, 5120, 1, false, upto({1, 8, 64}), gpu);
  time_moe(384, 6, upto({1, 2, 4, 8, 64, 256, 1024, 8192}), gpu);
  if (most > 64) time_moe(48, 1, upto({96, 192, 576, 8192}), gpu);
}

// Few launches of the kernels that matter, for a profiler.
void profile(const Gpu& gpu) {
  time_linear("wq_b 32768x1280", WeightFormat::kFp8Tile, 32768, 1280, 1, false, {1}, gpu);
  time_moe(48, 6, {1}, gpu);
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
