#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/core/result.h"
#include "base/tokenizer/tokenizer.h"
#include "base/types/request.h"
#include "engine/grammar/token_mask.h"
#include "engine/grammar/vocab_trie.h"

namespace hadal::grammar {

// The constraints of requests, compiled once each, and where every sequence stands in its own. What
// may come next is a function of the constraint and the ids generated so far.
class ConstraintBook {
 public:
  // `tokenizer` outlives the book. `n_slots`: sequences at a time.
  ConstraintBook(const tokenizer::Tokenizer& tokenizer, uint32_t n_slots);

  // Can this constraint be kept to? Any thread. kInvalidRequest names the place in the schema.
  core::Status check(const types::Constraint& constraint);

  struct Place {
    bool waits = false;                 // Constraint::begins_after has not been generated yet
    bool may_end = false;               // the output is complete
    std::span<const uint32_t> allowed;  // unless it waits: bit t of word t/32; end tokens not set
  };
  // Engine thread. `generated` begins as it did in the last call of this slot since forget().
  core::Result<Place> place(uint32_t slot, const types::Constraint& constraint,
                            std::span<const types::TokenId> generated);
  void forget(uint32_t slot);

 private:
  struct Slot {
    std::shared_ptr<TokenMasks> masks;
    Automaton::State state = Automaton::kDead;
    size_t n_read = 0;  // generated ids, those before the constraint included
    bool begun = false;
  };
  using Compiled = std::shared_ptr<const Grammar>;
  core::Result<Compiled> compiled(const types::Constraint& constraint);
  std::shared_ptr<TokenMasks> masks_of(const types::Constraint& constraint,
                                       const Compiled& grammar);

  static constexpr size_t kMaxCompiled = 64, kMaxMasks = 8;
  // From here on a sequence begins its states anew, so that they never run out.
  static constexpr size_t kManyStates = Automaton::kMaxStates / 2;

  const tokenizer::Tokenizer& tokenizer_;
  const VocabTrie trie_;
  std::mutex mutex_;                                      // guards compiled_
  std::list<std::pair<std::string, Compiled>> compiled_;  // by schema, latest first
  // Engine thread.
  std::list<std::pair<Compiled, std::shared_ptr<TokenMasks>>> masks_;  // latest first
  std::vector<Slot> slots_;
};

}  // namespace hadal::grammar
