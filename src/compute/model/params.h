#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/core/result.h"
#include "compute/device/device.h"

namespace hadal::model {

// Small parameter vectors on the device, packed into a few buffers. Grows at load only.
class Params {
 public:
  Params(device::Device& device, device::Stream& stream) : device_(device), stream_(stream) {}

  // A device copy of host bytes, 64-byte aligned. The host bytes must live until the stream is
  // synchronised.
  core::Result<const void*> put(const void* from, uint64_t bytes);
  uint64_t bytes() const { return total_; }
  std::vector<device::Buffer> take() { return std::move(buffers_); }

 private:
  device::Device& device_;
  device::Stream& stream_;
  std::vector<device::Buffer> buffers_;
  uint64_t used_ = 0;
  uint64_t total_ = 0;
};

}  // namespace hadal::model
