#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/core/result.h"
#include "compute/device/device.h"
#include "compute/device/view.h"

namespace hadal::ops {

struct SamplerShape {
  int32_t n_vocab = 0;
  int32_t n_slots = 0;   // sequences whose tokens are counted
  int32_t max_rows = 0;  // rows of one call
};

// How one row's next token is chosen; the meaning of each number is that of
// engine/sampling/sampler.h. What the spans point to is read during the call of sample().
struct SampleRow {
  float temperature = 1;  // 0: the largest logit, the lowest id among equals
  float top_p = 1, min_p = 0;
  int32_t top_k = 0;
  float repetition = 1, presence = 0, frequency = 0;  // of the tokens counted in `slot`
  int32_t slot = -1;                                  // -1: no penalties
  uint64_t seed = 0, position = 0;
  uint32_t stream = 0;
  bool logprobs = false;
  int32_t n_top = 0;  // at most SampledToken::kMaxTop
  std::span<const std::pair<int32_t, float>> bias = {};
  std::span<const uint32_t> allowed = {};  // bit t of word t / 32; empty: everything
  std::span<const int32_t> banned = {};
};

// What came out. Plain bytes, copied from the device.
struct SampledToken {
  static constexpr int kMaxTop = 20;
  enum class State : int32_t {
    kOk,
    kNotANumber,  // a logit is NaN
    kNoToken,     // everything is excluded, or a logit is infinite
  };
  State state = State::kOk;
  int32_t token = 0;
  float logprob = 0;  // of `token`, with `logprobs`
  int32_t n_top = 0;
  std::array<int32_t, kMaxTop> top = {};  // best first
  std::array<float, kMaxTop> top_logprob = {};
};

// Chooses tokens where the logits are, so that only ids come back. A backend without one has its
// logits copied and sampled on the host. Law: given the same bits of logits it gives the host's
// ids; log-probabilities agree to 1e-5. One stream drives it.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // Forgets the tokens counted in a slot.
  virtual void clear(int32_t slot, device::Stream& stream) = 0;
  // Counts tokens of a slot: those of a prompt are only seen, those of an output are seen and
  // counted. The span is read during the call.
  virtual core::Status count(int32_t slot, std::span<const int32_t> tokens, bool output,
                             device::Stream& stream) = 0;
  // Row i of `logits` (device memory, [rows.size(), n_vocab] f32, changed by nobody) by rows[i].
  virtual core::Status sample(device::Matrix<const float> logits, std::span<const SampleRow> rows,
                              device::Stream& stream) = 0;
  // Of the last sample(), once its stream was synchronised.
  virtual std::span<const SampledToken> results() const = 0;
};

}  // namespace hadal::ops
