#include "compute/model/logit_rows.h"

#include "base/core/check.h"
#include "compute/weights/model_config.h"

namespace hadal::model {

uint64_t LogitRows::bytes(const Model& model, int32_t max_rows) {
  return static_cast<uint64_t>(max_rows) * static_cast<uint64_t>(model.config().vocab) *
         sizeof(float);
}

core::Result<LogitRows> LogitRows::make(const Model& model, device::Device& device,
                                        int32_t max_rows) {
  LogitRows out;
  out.device_ = &device;
  out.vocab_ = model.config().vocab;
  const uint64_t size = bytes(model, max_rows);
  HADAL_TRY(out.host_rows_, device.allocate(size, device::Memory::kHost));
  if (!device.reads_host_memory()) {
    HADAL_TRY(out.device_rows_, device.allocate(size, device::Memory::kDevice));
  }
  return out;
}

void LogitRows::fetch(const Model& model, Workspace& workspace, int32_t first, int32_t n,
                      device::Stream& stream) {
  const auto size = static_cast<uint64_t>(n * vocab_) * sizeof(float);
  HADAL_CHECK(size <= host_rows_.size(), "more rows of logits than asked for");
  const bool shared = device_rows_.data() == nullptr;
  auto* rows = reinterpret_cast<float*>(shared ? host_rows_.data() : device_rows_.data());
  model.logits(workspace, first, n, {rows, n, vocab_}, stream);
  if (!shared) device_->copy(stream, host_rows_.data(), rows, size);
}

std::span<float> LogitRows::row(int32_t i) const {
  return {reinterpret_cast<float*>(host_rows_.data()) + i * vocab_, static_cast<size_t>(vocab_)};
}

}  // namespace hadal::model
