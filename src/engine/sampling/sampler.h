#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/core/result.h"
#include "base/types/request.h"
#include "engine/sampling/seen_tokens.h"

namespace hadal::sampling {

// Scratch of sample_row for a vocabulary; made once. One caller at a time.
struct Workspace {
  explicit Workspace(uint32_t n_vocab);
  struct Candidate {
    float logit = 0;
    types::TokenId token = 0;
  };
  std::vector<Candidate> candidates;  // [n_vocab]
};

struct RowInput {
  std::span<float> logits;  // [n_vocab], changed in place
  const types::SamplingParams* params = nullptr;
  const SeenTokens* seen = nullptr;   // null: no penalties
  std::span<const uint32_t> allowed;  // grammar mask, bit t of word t/32; empty: everything
  std::span<const types::TokenId>
      banned;             // ids that may not come now (end tokens before min_tokens)
  uint64_t position = 0;  // absolute position of the new token
};

// Chooses the next token of one row. Steps, in this order: penalties and bias; mask;
// log-probabilities; temperature; top-k; top-p and min-p; draw. The result is a function of this
// row's input alone: no batch, thread or history of calls enters it.
//
//   repetition   logit / r if logit > 0 else logit * r, for tokens of prompt and output
//   frequency    logit - f * (times in the output); presence: logit - p if there
//   logprob      log softmax of the logits after the mask, before temperature
//   top-k        the k largest; among equals the lower id
//   top-p        the smallest set of the most likely tokens whose mass reaches p (after temperature
//   and top-k) min-p        tokens of at least min_p times the likeliest one's probability draw
//   argmax of logit / T + Gumbel noise (gumbel_noise below), the lower id among equals
//   temperature 0: the largest logit, the lowest id among equals
//
// kInternal if no token is left or a logit is NaN: the row must end with an error, no token is made
// up.
core::Result<types::TokenEvent> sample_row(const RowInput& row, Workspace& workspace);

// Whether any token that was seen changes a logit.
bool has_penalties(const types::SamplingParams& params);

// The two ways in which a row has no next token.
core::Error not_a_number();
core::Error no_token_left();

// The noise of one token, a function of these four alone: -log(-log(u)) with u = (b + 1/2) / 2^24,
// b the upper 24 bits of word token % 4 of Philox4x32-10 with the key (seed) and the counter (token
// / 4, low and high half of the position, stream). Four neighbours share a call, for its price is
// what a draw costs. Shared by target and draft, so that drafting cannot change a draw.
float gumbel_noise(uint64_t seed, uint64_t position, uint32_t stream, types::TokenId token);

}  // namespace hadal::sampling
