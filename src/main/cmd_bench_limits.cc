#include "main/cmd_bench_limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include <unistd.h>

namespace hadal::main {
namespace {

// Three streams side by side, as the product kernels read panels side by side: on some processors
// one stream alone does not reach what memory can give (Zen 3: 17 of 19 GB/s), and streams a power
// of two apart hinder each other. Less than 192 bytes at the end are not read.
uint64_t read_all(const std::byte* data, int64_t begin, int64_t end) {
  typedef uint64_t Words __attribute__((vector_size(16)));
  const int64_t third = (end - begin) / 192 * 64;
  Words sum[4] = {};
  for (int64_t i = begin; i < begin + third; i += 64) {
    for (int stream = 0; stream < 3; ++stream) {
      const std::byte* const line = data + i + stream * third;
      __builtin_prefetch(line + 4096, 0, 3);
      for (int j = 0; j < 4; ++j) {
        Words w;
        std::memcpy(&w, line + 16 * j, 16);
        sum[j] ^= w;
      }
    }
  }
  const Words all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0] ^ all[1];
}

}  // namespace

double bench_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Spread summarise(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {median, (values[n - 1 - n / 10] - values[n / 10]) / median};
}

int64_t last_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : 32 << 20;
}

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

BenchLimits::BenchLimits(cpu::ThreadPool& pool)
    : pool_(pool), buffer_(std::max<int64_t>(4 * last_cache_bytes(), 256 << 20) / 4096 * 4096) {
  pool_.run([&](const cpu::Lane& lane) {
    const cpu::Range mine = cpu::share(buffer_.size(), lane, 4096);
    std::memset(buffer_.data() + mine.begin, 1, static_cast<size_t>(mine.end - mine.begin));
  });
}

double BenchLimits::read_bandwidth() {
  const double start = bench_seconds();
  pool_.run([&](const cpu::Lane& lane) {
    const cpu::Range mine = cpu::share(buffer_.size(), lane, 4096);
    const uint64_t sum = read_all(buffer_.data(), mine.begin, mine.end);
    std::memcpy(lane.scratch, &sum, sizeof(sum));
  });
  return static_cast<double>(buffer_.size()) / (bench_seconds() - start);
}

double bf16_peak(cpu::ThreadPool& pool, std::span<const cpu::LinearKernels> programs) {
  constexpr int64_t kTurns = 10'000'000;
  double best = 0;
  for (const cpu::LinearKernels& program : programs) {
    const double start = bench_seconds();
    double flops = 0;
    pool.run([&](const cpu::Lane& lane) {
      auto* const sink = reinterpret_cast<float*>(lane.scratch);
      for (int i = 0; i < 10; ++i) sink[i] = 0.5F;
      const double done = program.peak(kTurns, sink);
      if (lane.index == 0) flops = done * lane.count;
    });
    best = std::max(best, flops / (bench_seconds() - start));
  }
  return best;
}

}  // namespace hadal::main
