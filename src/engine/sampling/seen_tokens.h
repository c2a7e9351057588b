#pragma once

#include <cstdint>
#include <vector>

#include "base/types/request.h"

namespace hadal::sampling {

// Which tokens a sequence has seen, for penalties: the prompt's count for repetition, the output's
// for all three. Grows with the distinct tokens of one sequence; a look-up by id needs no hash.
// Engine thread only.
class SeenTokens {
 public:
  struct Entry {
    types::TokenId token = 0;
    uint32_t n_output = 0;
  };

  explicit SeenTokens(uint32_t n_vocab) : place_(n_vocab, kAbsent) {}

  void add_prompt(types::TokenId token) { entry(token); }
  void add_output(types::TokenId token) { ++entry(token).n_output; }
  void clear();
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  Entry& entry(types::TokenId token);

  std::vector<uint32_t> place_;  // [n_vocab] index into entries_
  std::vector<Entry> entries_;
};

}  // namespace hadal::sampling
