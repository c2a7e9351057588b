#include "compute/model/params.h"

#include <algorithm>

namespace hadal::model {
namespace {

constexpr uint64_t kChunk = 1 << 20;

}  // namespace

core::Result<const void*> Params::put(const void* from, uint64_t bytes) {
  const uint64_t size = (bytes + 63) / 64 * 64;
  if (buffers_.empty() || used_ + size > buffers_.back().size()) {
    HADAL_TRY(device::Buffer buffer,
              device_.allocate(std::max(kChunk, size), device::Memory::kDevice));
    total_ += buffer.size();
    buffers_.push_back(std::move(buffer));
    used_ = 0;
  }
  std::byte* to = buffers_.back().data() + used_;
  device_.copy(stream_, to, from, bytes);
  used_ += size;
  return static_cast<const void*>(to);
}

}  // namespace hadal::model
