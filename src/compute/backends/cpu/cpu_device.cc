#include "compute/backends/cpu/cpu_device.h"

#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace hadal::cpu {
namespace {

class CpuEvent final : public device::Event {
 public:
  void record(device::Stream&) override {}
  void wait_on(device::Stream&) override {}
  bool done() const override { return true; }
  void wait() override {}
};

class CpuHostView final : public device::HostView {
 public:
  explicit CpuHostView(const void* data) : data_(data) {}
  const void* data() const override { return data_; }

 private:
  const void* data_;
};

// MemAvailable of /proc/meminfo; 0 if it cannot be read.
uint64_t available_memory() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
  }
  std::fclose(file);
  return static_cast<uint64_t>(kib) * 1024;
}

}  // namespace

uint64_t CpuDevice::free_bytes() const {
  return available_memory() / 16 * 15;
}

core::Result<device::Buffer> CpuDevice::allocate(uint64_t bytes, device::Memory memory) {
  if (bytes == 0) return device::Buffer(*this, nullptr, 0, memory);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return core::Error{core::Code::kOverloaded,
                       fmt::format("cannot map {} MiB of memory; {} MiB are available", bytes >> 20,
                                   available_memory() >> 20)};
  }
  if (bytes >= (4u << 20)) madvise(data, bytes, MADV_HUGEPAGE);
  return device::Buffer(*this, static_cast<std::byte*>(data), bytes, memory);
}

void CpuDevice::release(std::byte* data, uint64_t bytes, device::Memory) {
  if (data != nullptr) munmap(data, bytes);
}

core::Result<std::unique_ptr<device::Stream>> CpuDevice::make_stream() {
  return std::unique_ptr<device::Stream>(std::make_unique<CpuStream>());
}

core::Result<std::unique_ptr<device::Event>> CpuDevice::make_event() {
  return std::unique_ptr<device::Event>(std::make_unique<CpuEvent>());
}

void CpuDevice::copy(device::Stream&, void* to, const void* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

core::Result<std::unique_ptr<device::HostView>> CpuDevice::view_host(const void* data, uint64_t) {
  return std::unique_ptr<device::HostView>(std::make_unique<CpuHostView>(data));
}

core::Result<std::unique_ptr<device::Recording>> CpuDevice::record(device::Stream&,
                                                                   const std::function<void()>&) {
  return std::unique_ptr<device::Recording>();
}

}  // namespace hadal::cpu
