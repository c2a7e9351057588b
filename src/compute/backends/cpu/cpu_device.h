#pragma once

#include <memory>
#include <string>

#include "compute/device/device.h"

namespace hadal::cpu {

// The host as a device: both kinds of memory are the same pages, allocated on first touch.
class CpuDevice final : public device::Device {
 public:
  explicit CpuDevice(std::string description) : description_(std::move(description)) {}

  std::string description() const override { return description_; }
  uint64_t free_bytes() const override;
  bool reads_host_memory() const override { return true; }
  core::Result<device::Buffer> allocate(uint64_t bytes, device::Memory memory) override;
  core::Result<std::unique_ptr<device::Stream>> make_stream() override;
  core::Result<std::unique_ptr<device::Event>> make_event() override;
  void copy(device::Stream& stream, void* to, const void* from, uint64_t bytes) override;
  core::Result<std::unique_ptr<device::HostView>> view_host(const void* data,
                                                            uint64_t bytes) override;
  core::Result<std::unique_ptr<device::Recording>> record(
      device::Stream& stream, const std::function<void()>& work) override;

 protected:
  void release(std::byte* data, uint64_t bytes, device::Memory memory) override;

 private:
  const std::string description_;
};

// A stream of the host runs each op before the call returns, on the threads of the backend's pool
// and the caller's: the pool is the parallelism, a second queue would only add a hand-over.
class CpuStream final : public device::Stream {
 public:
  core::Status synchronize() override { return {}; }
};

}  // namespace hadal::cpu
