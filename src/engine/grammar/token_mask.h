#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/grammar/automaton.h"
#include "engine/grammar/vocab_trie.h"

namespace hadal::grammar {

// The tokens that may come in a state of a grammar: one walk over the vocabulary's tree, kept for
// states that come again (inside a long string it is one state). Not thread-safe.
class TokenMasks {
 public:
  // `trie` outlives the masks.
  TokenMasks(std::shared_ptr<const Grammar> grammar, const VocabTrie& trie);

  Automaton& automaton() { return automaton_; }
  // Bit t of word t/32; end tokens are the caller's. Valid until the next call.
  std::span<const uint32_t> mask(Automaton::State state);

 private:
  static constexpr size_t kMaxKept = 256;  // masks; 16 KB each at 129,280 tokens

  void walk(Automaton::State state, std::vector<uint32_t>& out);

  const VocabTrie& trie_;
  Automaton automaton_;
  std::list<std::pair<Automaton::State, std::vector<uint32_t>>> kept_;  // latest first
  std::unordered_map<Automaton::State, decltype(kept_)::iterator> by_state_;
  std::vector<Automaton::State> path_;  // states by depth
};

}  // namespace hadal::grammar
