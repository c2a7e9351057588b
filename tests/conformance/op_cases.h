#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compute/ops/backend.h"

namespace hadal::test {

// One output of an op. A backend may differ from the reference by `ulps` units in the last place of
// its type (compare.h); 0 means to the bit, which holds for ids, codes and records made of equal
// inputs everywhere and for everything on the host's kernel levels. Codes behind a product differ
// where its rounding falls on the other side: `loose` is the share of places that may.
enum class OutType : uint8_t { kBytes, kI32, kBf16, kF32 };
struct Output {
  std::string name;
  OutType type = OutType::kBytes;
  int ulps = 0;
  double loose = 0;
  std::vector<std::byte> bytes;
};

// A device with helpers to bring arrays there and back. Owns what it uploads. With the outputs of
// the reference, each one that is read is then overwritten by them, so that every op of a chain is
// judged on equal inputs.
class Bench {
 public:
  explicit Bench(ops::Backend& backend, const std::vector<Output>* reference = nullptr);
  ops::Backend& backend() { return backend_; }
  ops::Ops& ops() { return backend_.ops(); }
  device::Stream& stream() { return *stream_; }

  template <class T>
  T* put(const std::vector<T>& host) {
    auto* p = static_cast<T*>(bytes(host.size() * sizeof(T)));
    backend_.device().copy(*stream_, p, host.data(), host.size() * sizeof(T));
    sync();
    return p;
  }
  template <class T>
  T* room(int64_t n) {
    return static_cast<T*>(bytes(static_cast<uint64_t>(n) * sizeof(T)));
  }
  template <class T>
  Output get(std::string name, OutType type, int ulps, T* from, int64_t n, double loose = 0) {
    Output out{std::move(name), type, ulps, loose, {}};
    out.bytes.resize(static_cast<size_t>(n) * sizeof(T));
    read(out, from);
    return out;
  }
  ops::Ops::Scratch scratch();
  void sync();

 private:
  void* bytes(uint64_t n);
  void read(Output& out, void* from);
  ops::Backend& backend_;
  const std::vector<Output>* reference_;
  size_t n_read_ = 0;
  std::unique_ptr<device::Stream> stream_;
  std::vector<device::Buffer> buffers_;
};

// Inputs are the same on every backend: drawn on the host from the case's seed.
struct OpCase {
  std::string name;
  std::function<std::vector<Output>(Bench&)> run;
  bool large = false;  // minutes under a memory checker
};
std::vector<OpCase>
dense_cases();  // rope, embed, boundary, linear, route, experts, final norm, Engram
std::vector<OpCase>
attention_cases();  // latents, entries, query, search, attention, projection, commit
std::vector<OpCase> sampler_cases();  // next tokens and log-probabilities
std::vector<OpCase> alone_cases();    // a row's bits alone and in a batch
std::vector<OpCase> row_cases();      // routing, norms, latents: released and odd sizes

// Deterministic draws.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  float normal();
  std::vector<float> f32(int64_t n, float scale = 1);
  std::vector<uint16_t> bf16(int64_t n, float scale = 1, float shift = 0);
  std::vector<uint8_t> e4m3(int64_t n);
  std::vector<uint8_t> any_bytes(int64_t n);
  std::vector<uint8_t> scales(int64_t n, uint8_t around);

 private:
  uint64_t state_;
};

}  // namespace hadal::test
