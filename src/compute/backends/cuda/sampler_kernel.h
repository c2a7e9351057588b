#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "compute/ops/sampler.h"

namespace hadal::cuda {

// One row as the kernel takes it: ops::SampleRow with its spans as places in the step's arrays.
struct SampleTerms {
  uint64_t seed, position;
  int64_t row;  // of logits and results
  float temperature, top_p, min_p;
  float repetition, presence, frequency;
  int32_t top_k;
  int32_t slot;  // -1: no penalties
  uint32_t stream;
  int32_t n_top;
  int32_t logprobs;
  int32_t first_edit, n_edits;
  int32_t first_word, n_words;  // n_words -1: no mask
};

// An addition to a logit, sorted by token and then in the order of application; -inf bans.
struct LogitEdit {
  int32_t token;
  float bias;
};

// A counted token of a slot: seen, and one more of the output if `output`.
struct TokenCount {
  int32_t token;
  int32_t output;
};
inline constexpr uint32_t kSeenBit = 0x80000000u;

struct SampleArrays {
  const float* logits;  // [rows, n_vocab], `stride` apart
  int64_t stride;
  int32_t n_vocab;
  const SampleTerms* rows;
  const LogitEdit* edits;
  const uint32_t* words;
  const uint32_t* counts;  // [n_slots, n_vocab]: kSeenBit and the times in the output
  ops::SampledToken* out;
};

// Bytes of shared memory that a block needs for its slice of the vocabulary.
uint64_t sample_slice_bytes(int32_t n_vocab);
uint64_t sample_static_bytes();
cudaError_t prepare_sample(int32_t n_vocab);  // once, before the first launch

// Whether a row's logits are read past (sampler_stream.cuh) and not kept: no edits, no
// log-probabilities, and truncation only of bare logits and to few or by mass.
bool sample_streams(const SampleTerms& terms, int32_t n_vocab);
// The first `n_streamed` of arrays.rows are such.
void launch_sample(SampleArrays arrays, int32_t n_streamed, int32_t n_sliced, cudaStream_t stream);
// At most kGivenRows such rows, given by value: nothing has to be copied for them.
inline constexpr int kGivenRows = 64;
void launch_given(SampleArrays arrays, std::span<const SampleTerms> rows, cudaStream_t stream);
void launch_count(uint32_t* counts, const TokenCount* tokens, int32_t n, cudaStream_t stream);
// noise_value of all 2^24 arguments, for tests.
void launch_noise_table(float* out, cudaStream_t stream);

}  // namespace hadal::cuda
