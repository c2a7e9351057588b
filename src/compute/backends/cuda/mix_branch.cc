#include "compute/backends/cuda/mix_branch.h"

#include <fmt/format.h>

#include "base/core/check.h"
#include "compute/backends/cuda/cuda_device.h"

namespace hadal::cuda {

core::Result<std::unique_ptr<MixBranch>> MixBranch::make(uint64_t scratch_bytes) {
  std::unique_ptr<MixBranch> out(new MixBranch());
  cudaError_t error = cudaStreamCreateWithFlags(&out->stream_, cudaStreamNonBlocking);
  for (cudaEvent_t* event : {&out->forked_, &out->ended_})
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  if (error != cudaSuccess) return cuda_error("making a second branch for recordings", error);
  HADAL_TRY(out->scratch_, DeviceBytes::make(scratch_bytes));
  return out;
}

MixBranch::~MixBranch() {
  if (forked_ != nullptr) cudaEventDestroy(forked_);
  if (ended_ != nullptr) cudaEventDestroy(ended_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void MixBranch::start(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (owner_ == nullptr) owner_ = stream;
}

void MixBranch::stop(cudaStream_t stream) {
  join(stream);
  const std::lock_guard lock(mutex_);
  if (owner_ == stream) owner_ = nullptr;
}

bool MixBranch::serves(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  return owner_ != nullptr && owner_ == stream;
}

// Errors of the calls below show at the end of the recording, which is then refused.
cudaStream_t MixBranch::fork(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  HADAL_CHECK(owner_ == stream && !open_, "a branch of a recording");
  cudaEventRecord(forked_, stream);
  cudaStreamWaitEvent(stream_, forked_, 0);
  open_ = true;
  return stream_;
}

void MixBranch::end() {
  cudaEventRecord(ended_, stream_);
}

bool MixBranch::join(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (owner_ != stream || !open_) return false;
  cudaStreamWaitEvent(stream, ended_, 0);
  open_ = false;
  return true;
}

}  // namespace hadal::cuda
