#include "engine/grammar/token_mask.h"

namespace hadal::grammar {

TokenMasks::TokenMasks(std::shared_ptr<const Grammar> grammar, const VocabTrie& trie)
    : trie_(trie), automaton_(std::move(grammar)), path_(257) {}

std::span<const uint32_t> TokenMasks::mask(Automaton::State state) {
  if (const auto found = by_state_.find(state); found != by_state_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
    return kept_.front().second;
  }
  std::vector<uint32_t> words;
  if (kept_.size() == kMaxKept) {
    words = std::move(kept_.back().second);
    by_state_.erase(kept_.back().first);
    kept_.pop_back();
  }
  walk(state, words);
  kept_.emplace_front(state, std::move(words));
  by_state_[state] = kept_.begin();
  return kept_.front().second;
}

void TokenMasks::walk(Automaton::State state, std::vector<uint32_t>& out) {
  out.assign((static_cast<size_t>(trie_.n_vocab()) + 31) / 32, 0);
  path_[0] = state;
  const std::span<const VocabTrie::Node> nodes = trie_.nodes();
  for (uint32_t i = 0; i < nodes.size();) {
    const VocabTrie::Node& node = nodes[i];
    const Automaton::State to = automaton_.next(path_[node.depth - 1u], node.byte);
    if (to == Automaton::kDead) {
      i = node.skip;
      continue;
    }
    path_[node.depth] = to;
    if (node.token >= 0) out[static_cast<size_t>(node.token) / 32] |= 1u << (node.token % 32);
    ++i;
  }
}

}  // namespace hadal::grammar
