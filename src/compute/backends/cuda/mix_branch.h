#pragma once

#include <memory>
#include <mutex>

#include <cuda_runtime_api.h>

#include "base/core/result.h"
#include "compute/backends/cuda/packed.h"
#include "compute/ops/ops.h"

namespace hadal::cuda {

// The second branch of a recording. What a boundary mixes is wanted at the next boundary and
// nowhere else, so a recorded step gives it to this branch, beside the products of the sub-layer:
//
//   boundary: rows -> products of the sub-layer ... -> boundary: rows -> ...
//                  \-> mix -> finish -----------------/
//
// At most one branch is open: every boundary joins the one before it first. Its rows overlap with
// both kernels in front of them (the recording's two edges are programmatic, and the kernel's wait
// is for both; finish waits for mix). Between a fork and its join the branch reads the streams,
// which only boundaries (and Engram behind one of them) write, and writes pre, post and comb, which
// only boundaries and the step's end read. Its sums lie in memory of its own, since the ops beside
// it use the step's scratch.
//
// Thread safety: any thread; recordings at the same time are allowed, one of them gets the branch.
// Recordings that forked are played one after the other: they share the branch's memory.
class MixBranch {
 public:
  static core::Result<std::unique_ptr<MixBranch>> make(uint64_t scratch_bytes);
  MixBranch(const MixBranch&) = delete;
  MixBranch& operator=(const MixBranch&) = delete;
  ~MixBranch();

  // A recording of `stream` begins, and ends: an open branch is joined.
  void start(cudaStream_t stream);
  void stop(cudaStream_t stream);

  // True if `stream` is the recorded one: it may fork.
  bool serves(cudaStream_t stream);
  // A stream whose work waits for everything given to `stream` so far. REQUIRES: serves(stream), no
  // open branch.
  cudaStream_t fork(cudaStream_t stream);
  // All work of the branch has been given.
  void end();
  // Later work of `stream` waits for the branch. False if none is open.
  bool join(cudaStream_t stream);
  ops::Ops::Scratch scratch() const {
    return {reinterpret_cast<std::byte*>(scratch_.data()), scratch_.size()};
  }

 private:
  MixBranch() = default;
  std::mutex mutex_;               // guards owner_ and open_
  cudaStream_t owner_ = nullptr;   // the recorded stream
  bool open_ = false;              // forked and not joined
  cudaStream_t stream_ = nullptr;  // constant after make()
  cudaEvent_t forked_ = nullptr, ended_ = nullptr;
  DeviceBytes scratch_;
};

}  // namespace hadal::cuda
