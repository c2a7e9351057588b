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
    bool waits = false;          // the form has not begun: the text is free
    bool may_end = false;        // the output may end here
    types::TokenId banned = -1;  // while it waits: a control token that may not come
    // Unless it waits: bit t of word t/32; control and end tokens not set.
    std::span<const uint32_t> allowed;
    types::TokenId control = -1;  // a control token that may come too
  };
  // Engine thread. `generated` begins as it did in the last call of this slot since forget().
  core::Result<Place> place(uint32_t slot, const types::Constraint& constraint,
                            std::span<const types::TokenId> generated);
  void forget(uint32_t slot);

 private:
  struct Slot {
    std::shared_ptr<TokenMasks> masks;  // null: the form has not begun
    Automaton::State state = Automaton::kDead;
    size_t n_read = 0;   // generated ids, those before the form included
    bool found = false;  // Constraint::begins_after has been generated, or there is none
  };
  using Compiled = std::shared_ptr<const Grammar>;
  static core::Status check_begun(const types::Constraint& constraint, const Compiled& grammar);
  core::Result<Compiled> compiled(const types::Constraint& constraint);
  bool find_beginning(Slot& at, const types::Constraint& constraint,
                      std::span<const types::TokenId> generated) const;
  Place waiting(const Slot& at, const types::Constraint& constraint,
                std::span<const types::TokenId> generated) const;
  std::shared_ptr<TokenMasks> masks_of(const Compiled& grammar);

  static constexpr size_t kMaxCompiled = 64, kMaxMasks = 8;
  static constexpr size_t kMaxNodesKept = 1u << 20;  // of all compiled grammars together
  // From here on a sequence begins its states anew, so that they never run out.
  static constexpr size_t kManyStates = Automaton::kMaxStates / 2;

  const tokenizer::Tokenizer& tokenizer_;
  const VocabTrie trie_;
  std::mutex mutex_;                                      // guards compiled_
  std::list<std::pair<std::string, Compiled>> compiled_;  // latest first
  // Engine thread.
  std::list<std::pair<Compiled, std::shared_ptr<TokenMasks>>> masks_;  // latest first
  std::vector<Slot> slots_;
};

}  // namespace hadal::grammar
