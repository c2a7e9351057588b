#include "compute/backends/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "compute/backends/cuda/mix_branch.h"

namespace hadal::cuda {
namespace {

// Left for the driver, for contexts of other processes and for graphs that are recorded later.
constexpr uint64_t kFreeMargin = 1ull << 30;

class CudaEvent final : public device::Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void record(device::Stream& stream) override { cudaEventRecord(event_, raw(stream)); }
  void wait_on(device::Stream& stream) override { cudaStreamWaitEvent(raw(stream), event_, 0); }
  bool done() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  void wait() override { cudaEventSynchronize(event_); }

 private:
  cudaEvent_t event_;
};

class CudaRecording final : public device::Recording {
 public:
  explicit CudaRecording(cudaGraphExec_t graph) : graph_(graph) {}
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }
  void play(device::Stream& stream) override { cudaGraphLaunch(graph_, raw(stream)); }

 private:
  cudaGraphExec_t graph_;
};

class CudaHostView final : public device::HostView {
 public:
  CudaHostView(void* registered, const void* data) : registered_(registered), data_(data) {}
  CudaHostView(const CudaHostView&) = delete;
  CudaHostView& operator=(const CudaHostView&) = delete;
  ~CudaHostView() override {
    if (registered_ != nullptr) cudaHostUnregister(registered_);
  }
  const void* data() const override { return data_; }

 private:
  void* registered_;  // whole pages; null: nothing to undo
  const void* data_;
};

bool has(cudaDeviceAttr attribute) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, 0) == cudaSuccess && value != 0;
}

}  // namespace

core::Error cuda_error(const char* tried, cudaError_t error) {
  const bool memory = error == cudaErrorMemoryAllocation;
  return {
      memory ? core::Code::kOverloaded : core::Code::kDeviceLost,
      fmt::format("{} failed: {} ({})", tried, cudaGetErrorString(error), cudaGetErrorName(error))};
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

core::Status CudaStream::synchronize() {
  // A launch with a wrong configuration leaves its error here, a kernel's fault in the wait.
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t waited = cudaStreamSynchronize(stream_);
  if (launched != cudaSuccess) return cuda_error("a kernel launch", launched);
  if (waited != cudaSuccess) return cuda_error("work on the GPU", waited);
  return {};
}

uint64_t CudaDevice::free_bytes() const {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return free > kFreeMargin ? free - kFreeMargin : 0;
}

core::Result<device::Buffer> CudaDevice::allocate(uint64_t bytes, device::Memory memory) {
  if (bytes == 0) return device::Buffer(*this, nullptr, 0, memory);
  void* data = nullptr;
  if (memory == device::Memory::kHost) {
    const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return core::Error{core::Code::kOverloaded,
                         fmt::format("cannot pin {} MiB of host memory: {}", bytes >> 20,
                                     cudaGetErrorString(error))};
    }
    std::memset(data, 0, bytes);
    return device::Buffer(*this, static_cast<std::byte*>(data), bytes, memory);
  }
  cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the next call starts clean
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return core::Error{core::Code::kOverloaded,
                       fmt::format("cannot allocate {} MiB on the GPU: {} of its {} MiB are free",
                                   bytes >> 20, free >> 20, total >> 20)};
  }
  if (error != cudaSuccess) return cuda_error("allocating GPU memory", error);
  error = cudaMemset(data, 0, bytes);
  if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamLegacy);
  if (error != cudaSuccess) {
    cudaFree(data);
    return cuda_error("clearing GPU memory", error);
  }
  return device::Buffer(*this, static_cast<std::byte*>(data), bytes, memory);
}

void CudaDevice::release(std::byte* data, uint64_t, device::Memory memory) {
  if (data == nullptr) return;
  if (memory == device::Memory::kHost) {
    cudaFreeHost(data);
  } else {
    cudaFree(data);
  }
}

core::Result<std::unique_ptr<device::Stream>> CudaDevice::make_stream() {
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return cuda_error("making a stream", error);
  return std::unique_ptr<device::Stream>(std::make_unique<CudaStream>(stream));
}

core::Result<std::unique_ptr<device::Event>> CudaDevice::make_event() {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error != cudaSuccess) return cuda_error("making an event", error);
  return std::unique_ptr<device::Event>(std::make_unique<CudaEvent>(event));
}

void CudaDevice::copy(device::Stream& stream, void* to, const void* from, uint64_t bytes) {
  if (bytes > 0) cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, raw(stream));
}

core::Result<std::unique_ptr<device::HostView>> CudaDevice::view_host(const void* data,
                                                                      uint64_t bytes) {
  using ViewPtr = std::unique_ptr<device::HostView>;
  // Pageable access takes a fault a page at its first use, then runs at the bus's speed, and holds
  // no more memory than what is read. Pinning a mapped file reads all of it.
  if (has(cudaDevAttrPageableMemoryAccess))
    return ViewPtr(std::make_unique<CudaHostView>(nullptr, data));
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(data) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes + kPage - 1) / kPage * kPage;
  auto* pages = reinterpret_cast<void*>(begin);
  unsigned int flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
  if (has(cudaDevAttrHostRegisterReadOnlySupported)) flags |= cudaHostRegisterReadOnly;
  void* mapped = nullptr;
  cudaError_t error = cudaHostRegister(pages, end - begin, flags);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return ViewPtr();
  }
  error = cudaHostGetDevicePointer(&mapped, pages, 0);
  if (error != cudaSuccess) {
    cudaGetLastError();
    cudaHostUnregister(pages);
    return ViewPtr();
  }
  const auto* first =
      static_cast<const std::byte*>(mapped) + (reinterpret_cast<uintptr_t>(data) - begin);
  return ViewPtr(std::make_unique<CudaHostView>(pages, first));
}

core::Result<std::unique_ptr<device::Recording>> CudaDevice::record(
    device::Stream& stream, const std::function<void()>& work) {
  // The caller can do without a recording: the stream's next wait must not report this error.
  const auto refused = [](const char* tried, cudaError_t error) {
    cudaGetLastError();
    return cuda_error(tried, error);
  };
  cudaStream_t s = raw(stream);
  // An error from before is the next wait's to report.
  cudaError_t error = cudaPeekAtLastError();
  if (error != cudaSuccess) return cuda_error("work before a recording", error);
  error = cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return refused("recording a step", error);
  if (branch_ != nullptr) branch_->start(s);
  work();
  if (branch_ != nullptr) branch_->stop(s);
  // A launch that fails does not end the recording: it would miss the kernel at every play.
  const cudaError_t launched = cudaGetLastError();
  cudaGraph_t graph = nullptr;
  error = cudaStreamEndCapture(s, &graph);
  if (error != cudaSuccess) return refused("recording a step", error);
  if (launched != cudaSuccess) {
    cudaGraphDestroy(graph);
    return refused("a kernel launch of a recorded step", launched);
  }
  cudaGraphExec_t exec = nullptr;
  error = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  if (error != cudaSuccess) return refused("making a graph of a step", error);
  return std::unique_ptr<device::Recording>(std::make_unique<CudaRecording>(exec));
}

}  // namespace hadal::cuda
