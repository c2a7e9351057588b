#pragma once

#include <cstdint>
#include <span>

#include "base/core/result.h"
#include "compute/device/device.h"
#include "compute/model/model.h"

namespace hadal::model {

// Logits of some rows of a step, for the host. A device that shares the host's memory computes them
// in place; any other computes them in its own and copies behind the work.
class LogitRows {
 public:
  static core::Result<LogitRows> make(const Model& model, device::Device& device, int32_t max_rows);
  static uint64_t bytes(const Model& model, int32_t max_rows);

  // Queues logits of batch.logit_rows[first, first + n) of the last forward.
  void fetch(const Model& model, Workspace& workspace, int32_t first, int32_t n,
             device::Stream& stream);
  // Row i of the last fetch, [vocab] f32; to be read, and changed, after the stream was
  // synchronised.
  std::span<float> row(int32_t i) const;

 private:
  device::Device* device_ = nullptr;
  int64_t vocab_ = 0;
  device::Buffer device_rows_;  // empty where the memory is shared
  device::Buffer host_rows_;
};

}  // namespace hadal::model
