#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
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
  // Bit t of word t/32; end tokens are the caller's. Valid until the next call. Empty: the state is
  // so ambiguous that looking through it would take more than kMaxWork places.
  std::span<const uint32_t> mask(Automaton::State state);

 private:
  static constexpr size_t kMaxKept = 256;  // masks; 16 KB each at 129,280 tokens

  static constexpr uint64_t kMaxWork = 4u << 20;  // some 50 ms

  bool fill(Automaton::State state, std::vector<uint32_t>& out);
  bool walk(std::span<const VocabTrie::Node> nodes, Automaton::State state,
            std::vector<uint32_t>& out);
  // Where every plain character (vocab_trie.h) leads; nullopt: not all to the same state.
  std::optional<Automaton::State> plain_step(Automaton::State state);
  std::optional<Automaton::State> find_plain_step(Automaton::State state);
  bool leads_to(Automaton::State state, uint8_t low, uint8_t high, uint32_t n_tails,
                Automaton::State to);

  const VocabTrie& trie_;
  Automaton automaton_;
  std::list<std::pair<Automaton::State, std::vector<uint32_t>>> kept_;  // latest first
  std::unordered_map<Automaton::State, decltype(kept_)::iterator> by_state_;
  std::vector<Automaton::State> path_;  // states by depth
  std::unordered_map<Automaton::State, std::optional<Automaton::State>> plain_steps_;
};

}  // namespace hadal::grammar
