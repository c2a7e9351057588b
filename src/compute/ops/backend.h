#pragma once

#include <cstdint>
#include <string_view>

#include "compute/device/device.h"
#include "compute/ops/ops.h"

namespace hadal::ops {

// What a backend gives to the program: one device with its op set. Owns both.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu", "cuda"
  virtual device::Device& device() = 0;
  virtual Ops& ops() = 0;
};

}  // namespace hadal::ops
