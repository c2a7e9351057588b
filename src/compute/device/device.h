#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/core/result.h"

namespace hadal::device {

enum class Memory : uint8_t {
  kDevice,  // what the ops work on
  kHost,    // pinned on accelerators; device copies to and from it may overlap with work
};

class Device;

// Owns bytes of one device and does nothing else. Aligned to 256 bytes, zero at first.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::byte* data, uint64_t size, Memory memory)
      : device_(&device), data_(data), size_(size), memory_(memory) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  Memory memory() const { return memory_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(memory_, other.memory_);
  }
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  Memory memory_ = Memory::kDevice;
};

// A queue of work that runs in order. Ops given to one stream see each other's results; nothing
// else is promised until synchronize() returns. Host memory that a queued op reads must live until
// then. Thread safety: one thread gives work to a stream.
class Stream {
 public:
  virtual ~Stream() = default;
  // Waits until everything given so far is done. An error of the device shows here.
  virtual core::Status synchronize() = 0;
};

// A point in a stream that the host or another stream can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(Stream& stream) = 0;
  virtual void wait_on(Stream& stream) = 0;  // later work of `stream` waits for the recorded point
  virtual bool done() const = 0;
  virtual void wait() = 0;  // the host waits
};

// Work given to a stream once, to be given again with one call: the same ops with the same
// arguments, on what their memory then holds.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void play(Stream& stream) = 0;
};

// Read-only host memory under a pointer that ops of a device may follow. Undone by its destruction;
// the host memory itself belongs to somebody else.
class HostView {
 public:
  virtual ~HostView() = default;
  virtual const void* data() const = 0;
};

// One processor with its memory. Outlives its buffers, streams and events.
// Thread safety: all members may be called from any thread.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string description() const = 0;  // for people: "cpu, 2 threads, avx512bf16"
  // Bytes that allocate() could return now, with a margin left for others.
  virtual uint64_t free_bytes() const = 0;
  // True if ops may read host memory in place (large read-only tables then need no copy).
  virtual bool reads_host_memory() const = 0;
  // kOverloaded with the sizes in the text when there is not enough.
  virtual core::Result<Buffer> allocate(uint64_t bytes, Memory memory) = 0;
  virtual core::Result<std::unique_ptr<Stream>> make_stream() = 0;
  virtual core::Result<std::unique_ptr<Event>> make_event() = 0;
  // Either side may be host or device memory.
  virtual void copy(Stream& stream, void* to, const void* from, uint64_t bytes) = 0;
  // Lets ops read host memory in place, for tables of which a step touches a few rows. Null where
  // the device cannot; the host memory outlives the view.
  virtual core::Result<std::unique_ptr<HostView>> view_host(const void* data, uint64_t bytes) = 0;
  // What `work` gives to `stream` is recorded instead of done. Null where the device has no
  // recordings: give the work itself then. `work` must not wait, nor copy from pageable memory.
  virtual core::Result<std::unique_ptr<Recording>> record(Stream& stream,
                                                          const std::function<void()>& work) = 0;

 protected:
  friend class Buffer;
  virtual void release(std::byte* data, uint64_t bytes, Memory memory) = 0;
};

inline Buffer::~Buffer() {
  if (device_ != nullptr) device_->release(data_, size_, memory_);
}

}  // namespace hadal::device
