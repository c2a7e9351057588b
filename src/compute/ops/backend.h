#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "compute/device/device.h"
#include "compute/ops/ops.h"
#include "compute/ops/sampler.h"

namespace hadal::ops {

// What a device does at most: bytes a second read from its memory, bf16 products a second with f32
// sums (two operations each).
struct Peaks {
  double read_bytes = 0;
  double bf16_flops = 0;
};

// What a backend gives to the program: one device with its op set. Owns both.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu", "cuda"
  virtual device::Device& device() = 0;
  virtual Ops& ops() = 0;
  // The device's own sampler; null: logits are copied and sampled on the host.
  virtual core::Result<std::unique_ptr<Sampler>> make_sampler(const SamplerShape& shape) {
    (void)shape;
    return std::unique_ptr<Sampler>();
  }
  // Measured now, in about 0.2 s; for benchmarks. The host's are measured by `hadal bench ops`
  // itself.
  virtual core::Result<Peaks> measure_peaks() {
    return core::Error{core::Code::kInvalidRequest, "this backend does not measure its peaks",
                       "backend"};
  }
};

}  // namespace hadal::ops
