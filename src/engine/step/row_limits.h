#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/core/result.h"
#include "base/tokenizer/tokenizer.h"
#include "engine/grammar/constraint_book.h"
#include "engine/step/step_runner.h"

namespace hadal::step {

// What a row's next token may not be, whoever samples it.
struct RowLimits {
  std::span<const types::TokenId> banned;
  std::span<const uint32_t> allowed;  // bit t of word t/32; empty: everything
};

// The limits that requests put on their output: least length, thinking budget, path, constraint.
// All of it is a function of the request and the ids generated so far, so that no batch, chunk,
// preemption or draft changes it. Engine thread, but accept().
class RowLimiter {
 public:
  // `tokenizer` is for constraints and outlives the limiter; null: a constraint is refused.
  RowLimiter(uint32_t n_vocab, uint32_t n_slots, const tokenizer::Tokenizer* tokenizer);

  // Can these limits be kept to? Any thread. kInvalidRequest names the request's field.
  core::Status accept(const types::Request& request);
  // Of the row that `chunk` samples. Valid until the next call for its slot. An error: the row ends
  // with it.
  core::Result<RowLimits> limits(const RunChunk& chunk);
  // The slot's sequence ended or another begins.
  void forget(uint32_t slot);

 private:
  std::vector<uint32_t>& empty_mask(uint32_t slot);
  void allow(std::vector<uint32_t>& mask, types::TokenId id) const;

  const uint32_t n_vocab_;
  std::vector<std::vector<uint32_t>> masks_;  // by slot; empty until needed
  std::vector<std::vector<types::TokenId>> banned_;
  std::unique_ptr<grammar::ConstraintBook> constraints_;
};

}  // namespace hadal::step
