#pragma once

#include "base/core/check.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// Device arrays start at multiples of this many bytes.
inline constexpr uint64_t kScratchAlign = 256;

constexpr uint64_t scratch_padded(uint64_t bytes) {
  return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}

// Cuts an op's scratch into arrays; checks that they fit. `rest` is what is left for an inner op.
class ScratchCutter {
 public:
  explicit ScratchCutter(ops::Ops::Scratch scratch) : rest_(scratch) {}
  template <class T>
  T* take(int64_t n) {
    const uint64_t bytes = scratch_padded(static_cast<uint64_t>(n) * sizeof(T));
    HADAL_CHECK(bytes <= rest_.bytes, "op scratch is too small");
    auto* p = reinterpret_cast<T*>(rest_.data);
    rest_.data += bytes;
    rest_.bytes -= bytes;
    return p;
  }
  ops::Ops::Scratch rest() const { return rest_; }

 private:
  ops::Ops::Scratch rest_;
};

}  // namespace hadal::cuda
