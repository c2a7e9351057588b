#pragma once

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

// Matrices with known values, device arrays and checks that count, for the programs of this folder.
namespace hadal::cuda {

using formats::bf16_from_float;
using formats::bf16_to_float;
using ops::WeightFormat;

inline int n_failed = 0;

inline void require(bool ok, const std::string& what) {
  if (!ok) ++n_failed;
  if (!ok) std::printf("FAILED %s\n", what.c_str());
}
inline void cuda_ok(cudaError_t e, const char* what) {
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

inline Gpu this_gpu() {
  cudaDeviceProp p;
  cuda_ok(cudaGetDeviceProperties(&p, 0), "properties");
  return {p.multiProcessorCount, p.major, p.minor, p.sharedMemPerBlockOptin,
          static_cast<size_t>(p.l2CacheSize)};
}

inline void parallel(int64_t n, const std::function<void(int64_t)>& work) {
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

inline std::vector<uint16_t> random_rows(int64_t n, uint32_t seed) {
  std::vector<uint16_t> x(static_cast<size_t>(n));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (auto& v : x) v = bf16_from_float(normal(random) * (random() % 64 == 0 ? 8.0f : 1.0f));
  return x;
}
inline std::vector<uint16_t> snapped(const std::vector<uint16_t>& x) {
  std::vector<uint16_t> out(x.size());
  formats::aq8_values(x.data(), static_cast<int64_t>(x.size()), out.data());
  return out;
}

struct Sum {
  double value = 0, magnitude = 0;
};
inline Sum dot(const HostMatrix& w, int64_t row, const uint16_t* x) {
  Sum s;
  for (int64_t i = 0; i < w.source.k; ++i) {
    const double p = w.at(row, i) * bf16_to_float(x[i]);
    s.value += p;
    s.magnitude += std::fabs(p);
  }
  return s;
}

inline const char* name_of(WeightFormat f) {
  constexpr const char* kNames[] = {"fp8", "fp4", "bf16", "f32"};
  return kNames[static_cast<int>(f)];
}

struct Scratch {
  OnDevice<uint8_t> bytes;
  explicit Scratch(uint64_t n) : bytes(n + 256), size(n) {}
  uint64_t size;
  operator ops::Ops::Scratch() const { return {reinterpret_cast<std::byte*>(bytes.get()), size}; }
};

struct HostExpert {
  HostMatrix w1, w3, w2;
  HostExpert(WeightFormat f, int64_t inter, int64_t hidden, uint32_t seed)
      : w1(f, inter, hidden, seed, 122),
        w3(f, inter, hidden, seed + 1, 122),
        w2(f, hidden, inter, seed + 2, 122) {}
  ops::ExpertSource source() const { return {w1.source, w3.source, w2.source}; }
};

}  // namespace hadal::cuda
