#include "engine/step/device_sampling.h"

#include <algorithm>

#include "compute/weights/model_config.h"
#include "engine/sampling/sampler.h"

namespace hadal::step {

core::Result<std::unique_ptr<DeviceSampling>> DeviceSampling::make(
    const model::Model& model, device::Device& device, std::unique_ptr<ops::Sampler> sampler,
    uint32_t n_slots) {
  std::unique_ptr<DeviceSampling> made(new DeviceSampling(model, std::move(sampler), n_slots));
  const auto vocab = static_cast<uint64_t>(model.config().vocab);
  HADAL_TRY(made->logits_,
            device.allocate(n_slots * vocab * sizeof(float), device::Memory::kDevice));
  return made;
}

void DeviceSampling::forget(uint32_t slot, device::Stream& stream) {
  if (n_counted_[slot] > 0) sampler_->clear(static_cast<int32_t>(slot), stream);
  n_counted_[slot] = 0;
}

core::Status DeviceSampling::count(const RunChunk& chunk, device::Stream& stream) {
  size_t& n = n_counted_[chunk.slot];
  const auto slot = static_cast<int32_t>(chunk.slot);
  const size_t n_prompt = std::min<size_t>(chunk.n_prompt, chunk.history.size());
  if (n < n_prompt) {
    HADAL_TRY_VOID(sampler_->count(slot, chunk.history.subspan(n, n_prompt - n), false, stream));
    n = n_prompt;
  }
  if (n < chunk.history.size()) {
    HADAL_TRY_VOID(sampler_->count(slot, chunk.history.subspan(n), true, stream));
    n = chunk.history.size();
  }
  return {};
}

ops::SampleRow DeviceSampling::row_of(const RunChunk& chunk, RowLimiter& limits) {
  const types::Request& request = *chunk.request;
  const types::SamplingParams& p = request.sampling;
  ops::SampleRow row = {.temperature = p.temperature,
                        .top_p = p.top_p,
                        .min_p = p.min_p,
                        .top_k = p.top_k,
                        .repetition = p.repetition_penalty,
                        .presence = p.presence_penalty,
                        .frequency = p.frequency_penalty,
                        .slot = sampling::has_penalties(p) ? static_cast<int32_t>(chunk.slot) : -1,
                        .seed = p.seed,
                        .position = chunk.history.size(),
                        .stream = p.stream,
                        .logprobs = p.logprobs,
                        .n_top = p.logprobs ? p.n_top_logprobs : 0,
                        .bias = p.logit_bias};
  std::string& error = errors_.emplace_back();
  if (const auto kept = limits.limits(chunk)) {
    row.allowed = kept->allowed;
    row.banned = kept->banned;
  } else {
    error = kept.error().message;
  }
  return row;
}

void DeviceSampling::launch(std::span<const RunChunk> chunks, RowLimiter& limits,
                            model::Workspace& workspace, device::Stream& stream) {
  rows_.clear();
  errors_.clear();
  queued_ = {};
  for (const RunChunk& chunk : chunks) {
    if (!chunk.samples) continue;
    rows_.push_back(row_of(chunk, limits));
    if (rows_.back().slot >= 0 && queued_) queued_ = count(chunk, stream);
  }
  if (rows_.empty() || !queued_) return;
  const auto n = static_cast<int32_t>(rows_.size());
  const device::Matrix<float> logits(reinterpret_cast<float*>(logits_.data()), n,
                                     model_.config().vocab);
  model_.logits(workspace, 0, n, logits, stream);
  queued_ = sampler_->sample(logits, rows_, stream);
}

void DeviceSampling::take(int32_t i, RunResult& result) const {
  if (!queued_) {
    result.error = queued_.error().message;
    return;
  }
  if (const std::string& error = errors_[static_cast<size_t>(i)]; !error.empty()) {
    result.error = error;
    return;
  }
  const ops::SampledToken& from = sampler_->results()[static_cast<size_t>(i)];
  if (from.state != ops::SampledToken::State::kOk) {
    const bool damaged = from.state == ops::SampledToken::State::kNotANumber;
    result.error = (damaged ? sampling::not_a_number() : sampling::no_token_left()).message;
    return;
  }
  types::TokenEvent event;
  event.token = from.token;
  event.logprob = from.logprob;
  for (size_t k = 0; k < static_cast<size_t>(from.n_top); ++k)
    event.top.push_back({from.top[k], from.top_logprob[k]});
  result.tokens.push_back(std::move(event));
}

}  // namespace hadal::step
