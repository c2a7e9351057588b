#pragma once

#include <memory>
#include <string>

#include <cuda_runtime_api.h>

#include "compute/backends/cuda/gpu.h"
#include "compute/device/device.h"

namespace hadal::cuda {

class MixBranch;

// The text of a failed call of the runtime: what was tried, what it said.
core::Error cuda_error(const char* tried, cudaError_t error);

class CudaStream final : public device::Stream {
 public:
  explicit CudaStream(cudaStream_t stream) : stream_(stream) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override;
  core::Status synchronize() override;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_;
};

inline cudaStream_t raw(device::Stream& stream) {
  return static_cast<CudaStream&>(stream).get();
}

// The GPU that the process sees first (CUDA_VISIBLE_DEVICES chooses). Device memory is zeroed at
// allocation, host memory is pinned.
class CudaDevice final : public device::Device {
 public:
  // `branch`: told of recordings, or null. Outlives the device.
  CudaDevice(Gpu gpu, std::string description, MixBranch* branch)
      : gpu_(gpu), description_(std::move(description)), branch_(branch) {}

  const Gpu& gpu() const { return gpu_; }
  std::string description() const override { return description_; }
  uint64_t free_bytes() const override;
  bool reads_host_memory() const override { return false; }
  core::Result<device::Buffer> allocate(uint64_t bytes, device::Memory memory) override;
  core::Result<std::unique_ptr<device::Stream>> make_stream() override;
  core::Result<std::unique_ptr<device::Event>> make_event() override;
  // Pageable host memory is read before the call returns (small) or staged; written before it
  // returns.
  void copy(device::Stream& stream, void* to, const void* from, uint64_t bytes) override;
  // Pins and maps the pages, or follows the pointer as it is where the GPU reads pageable memory.
  core::Result<std::unique_ptr<device::HostView>> view_host(const void* data,
                                                            uint64_t bytes) override;
  core::Result<std::unique_ptr<device::Recording>> record(
      device::Stream& stream, const std::function<void()>& work) override;

 protected:
  void release(std::byte* data, uint64_t bytes, device::Memory memory) override;

 private:
  const Gpu gpu_;
  const std::string description_;
  MixBranch* const branch_;
};

}  // namespace hadal::cuda
