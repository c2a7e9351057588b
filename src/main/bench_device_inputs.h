#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/check.h"
#include "compute/ops/backend.h"
#include "compute/ops/step_batch.h"

namespace hadal::main {

// A random matrix in a checkpoint's bytes, with sane magnitudes.
struct HostWeights {
  HostWeights(ops::WeightFormat format, int64_t n, int64_t k);
  uint64_t bytes() const { return weight.size() + scale.size(); }
  std::vector<uint8_t> weight, scale;
  ops::WeightSource source;
};

// Device arrays of a benchmark. Owns what it hands out until released.
class DeviceInputs {
 public:
  explicit DeviceInputs(ops::Backend& backend);
  device::Stream& stream() { return *stream_; }
  void sync();
  // What is allocated after a mark can be released together.
  size_t mark() const { return buffers_.size(); }
  void release(size_t mark);

  template <class T>
  T* room(int64_t n) {
    return reinterpret_cast<T*>(bytes(static_cast<uint64_t>(n) * sizeof(T)));
  }
  template <class T>
  T* put(const std::vector<T>& host) {
    T* to = room<T>(static_cast<int64_t>(host.size()));
    copy(to, host.data(), host.size() * sizeof(T));
    return to;
  }
  uint16_t* bf16(int64_t n);  // normal-like, of size 1
  std::vector<float> floats(int64_t n, float scale);
  // `k` distinct numbers below `n` for each row, ascending.
  std::vector<int32_t> choices(int64_t rows, int32_t k, int64_t n);
  uint32_t bits();
  void copy(void* to, const void* from, uint64_t n);

  template <class T>
  std::unique_ptr<T> must(core::Result<std::unique_ptr<T>> result) {
    HADAL_CHECK(result.has_value(), result.has_value() ? "" : result.error().message);
    return std::move(result).value();
  }

 private:
  std::byte* bytes(uint64_t n);
  ops::Backend& backend_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<device::Buffer> buffers_;
  uint64_t state_ = 0x9E3779B97F4A7C15u;
};

// A cache of `context` tokens per sequence with one source of ratio 1 of the released sizes, and
// rows at its end: `rows` sequences of one row, or one sequence of `rows` rows. Sequences have
// their own blocks, with the same contents.
class AttentionInput {
 public:
  AttentionInput(DeviceInputs& in, int32_t rows, int32_t context, bool one_sequence);
  ops::IndexArgs index() const { return index_; }
  ops::AttendArgs attend() const { return attend_; }

 private:
  void fill_slabs(DeviceInputs& in, uint32_t n_sequences, uint32_t blocks_each);
  ops::KvLayouts layouts_;
  ops::KvView kv_;
  ops::StepBatch batch_;
  ops::StepRows rows_;
  ops::IndexArgs index_;
  ops::AttendArgs attend_;
};

}  // namespace hadal::main
