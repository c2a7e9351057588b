#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>

#include "attention_world.h"
#include "base/core/check.h"
#include "compute/backends/cpu/cpu_backend.h"
#include "compute/backends/cuda/attend.h"
#include "compute/backends/cuda/index.h"
#include "compute/backends/cuda/kv_write.h"
#include "compute/backends/cuda/state.h"
#include "compute/formats/elements.h"

// Both backends side by side, and the arguments of search and attention for a world.
namespace hadal::test {

inline int failures = 0;

inline void report(bool good, const std::string& what) {
  std::printf("%s  %s\n", good ? "ok  " : "FAIL", what.c_str());
  if (!good) ++failures;
}

struct Machine {
  std::unique_ptr<ops::Backend> cpu;
  std::unique_ptr<device::Stream> cpu_stream;
  cuda::Gpu gpu;
  std::vector<std::byte> cpu_scratch = std::vector<std::byte>(size_t{256} << 20);
  std::byte* gpu_scratch = nullptr;
  static constexpr uint64_t kScratch = 256 << 20;

  Machine() {
    cpu = std::move(cpu::make_cpu_backend({.n_threads = 0, .level = "best", .pin = false})).value();
    cpu_stream = std::move(cpu->device().make_stream()).value();
    cudaDeviceProp p;
    must(cudaGetDeviceProperties(&p, 0), "device");
    gpu = {p.multiProcessorCount, p.major, p.minor, p.sharedMemPerBlockOptin,
           static_cast<size_t>(p.l2CacheSize)};
    must(cudaMalloc(&gpu_scratch, kScratch), "scratch");
    must(cudaMemset(gpu_scratch, 0xA5, kScratch), "scratch");
  }
  ops::Ops& reference() { return cpu->ops(); }
  ops::Ops::Scratch host_scratch() { return {cpu_scratch.data(), cpu_scratch.size()}; }
  ops::Ops::Scratch scratch() { return {gpu_scratch, kScratch}; }
  void sync(const char* what) {
    must(cudaGetLastError(), what);
    must(cudaDeviceSynchronize(), what);
  }
  std::unique_ptr<ops::Linear> pick(int64_t n, int64_t k) {
    std::vector<uint16_t> w(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < n; ++i)
      w[static_cast<size_t>(i * k + i * 7 % k)] = formats::bf16_from_float(1);
    const ops::WeightSource s[] = {
        {.format = ops::WeightFormat::kBf16, .n = n, .k = k, .weight = w.data()}};
    return std::move(reference().make_linear(s)).value();
  }
};

template <class T>
bool same(Twin<T>& twin, const std::string& what) {
  const std::vector<T> got = twin.download();
  size_t i = 0;
  while (i < got.size() && std::memcmp(&got[i], &twin.host()[i], sizeof(T)) == 0) ++i;
  report(i == got.size(), what + (i == got.size() ? ""
                                                  : " differs at " + std::to_string(i) + " of " +
                                                        std::to_string(got.size())));
  return i == got.size();
}

inline std::vector<float> angles(const std::vector<int32_t>& positions, int32_t d_rope,
                                 int32_t back) {
  std::vector<float> out;
  for (const int32_t p : positions)
    for (int32_t i = 0; i < d_rope / 2; ++i) {
      const double a = std::max(p - back, 0) * std::pow(10000.0, -2.0 * i / d_rope);
      out.push_back(static_cast<float>(std::cos(a)));
      out.push_back(static_cast<float>(std::sin(a)));
    }
  return out;
}

inline std::vector<uint16_t> repeated(std::vector<uint16_t> values, int64_t n) {
  const size_t drawn = values.size();
  values.resize(static_cast<size_t>(n));
  for (size_t i = drawn; i < values.size(); ++i) values[i] = values[i - drawn];
  return values;
}

// Search arrays of a world: queries, head weights, lists and pools.
struct Search {
  World& w;
  int64_t n, keys;
  Twin<uint8_t> iq;
  Twin<float> hw;
  Twin<int32_t> list, n_list, pool, n_pool;

  explicit Search(World& world)
      : w(world),
        n(w.batch.n_rows()),
        keys(w.dims.index_heads * ops::key_record_bytes(w.dims.d_index)),
        iq(w.index_queries(n)),
        hw(w.draw.f32(n * w.dims.index_heads)),
        list(n * w.dims.top_k),
        n_list(n),
        pool(n * w.dims.pool_blocks),
        n_pool(n) {}

  void run(Machine& m, bool gpu, bool make_pool, bool use_pool, cudaStream_t stream = nullptr) {
    const ops::StepRows rows = w.rows(gpu);
    const ops::KvView kv = w.view(gpu);
    ops::IndexArgs a;
    a.rows = &rows;
    a.n_rows = rows.n_rows;
    a.kv = &kv;
    a.layout = &w.layouts.kv;
    a.n_heads = w.dims.index_heads;
    a.d_index = w.dims.d_index;
    a.iq = {iq.at(gpu), n, keys};
    a.hw = {hw.at(gpu), n, w.dims.index_heads};
    a.top_k = w.dims.top_k;
    a.list = {list.at(gpu), n, w.dims.top_k};
    a.n_list = n_list.at(gpu);
    a.make_pool = make_pool;
    a.use_pool = use_pool;
    a.pool_block = w.dims.pool_block;
    a.pool = {pool.at(gpu), n, w.dims.pool_blocks};
    a.n_pool = n_pool.at(gpu);
    if (gpu)
      cuda::launch_index_select(a, m.scratch(), m.gpu, stream);
    else
      m.reference().index_select(a, m.host_scratch(), *m.cpu_stream);
  }
};

// Arguments of attention for a world whose lists are set (equal on both sides).
struct Attention {
  static constexpr int64_t kDrawn = int64_t{1} << 24;  // different values of Q: drawing takes long
  World& w;
  Search& s;
  int64_t n, wide;
  Twin<uint16_t> q, o;
  Twin<uint8_t> latents;
  Twin<float> sink, rope;

  Attention(World& world, Search& search)
      : w(world),
        s(search),
        n(w.batch.n_rows()),
        wide(w.dims.heads * w.dims.d_head),
        q(repeated(w.draw.bf16(std::min(n * wide, kDrawn)), n * wide)),
        o(n * wide),
        latents(w.window_records(n)),
        sink(w.draw.f32(w.dims.heads)),
        rope(angles(w.batch.positions, w.dims.d_rope, 0)) {}

  void run(Machine& m, bool gpu, bool source, cudaStream_t stream = nullptr) {
    const ops::StepRows rows = w.rows(gpu);
    const ops::KvView kv = w.view(gpu);
    ops::AttendArgs a;
    a.rows = &rows;
    a.n_rows = rows.n_rows;
    a.kv = &kv;
    a.layout = &w.layouts.kv;
    a.slot = &w.layouts.slot;
    a.source = source ? 0 : -1;
    a.window = w.dims.window;
    a.latents = {latents.at(gpu), n, w.layouts.slot.window_bytes};
    a.list = {s.list.at(gpu), n, w.dims.top_k};
    a.n_list = s.n_list.at(gpu);
    a.q = {q.at(gpu), n, wide};
    a.sink = sink.at(gpu);
    a.rope = rope.at(gpu);
    a.d_rope = w.dims.d_rope;
    a.d_head = w.dims.d_head;
    a.o = {o.at(gpu), n, wide};
    if (gpu)
      cuda::launch_sparse_attend(a, m.scratch(), m.gpu, stream);
    else
      m.reference().sparse_attend(a, m.host_scratch(), *m.cpu_stream);
  }
};

}  // namespace hadal::test
