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
  if (!fill(state, words)) return {};
  kept_.emplace_front(state, std::move(words));
  by_state_[state] = kept_.begin();
  return kept_.front().second;
}

bool TokenMasks::fill(Automaton::State state, std::vector<uint32_t>& out) {
  // How many plain characters may come, whatever they are.
  uint32_t n = 0;
  std::optional<Automaton::State> at = state;
  while (n < VocabTrie::kMaxPlain) {
    const auto next = plain_step(*at);
    if (!next) {
      out.assign(trie_.n_words(), 0);
      return walk(trie_.nodes(), state, out);
    }
    if (*next == Automaton::kDead) break;
    n = *next == *at ? VocabTrie::kMaxPlain : n + 1;
    at = next;
  }
  const std::span<const uint32_t> plain = trie_.plain_up_to(n);
  out.assign(plain.begin(), plain.end());
  return walk(trie_.not_plain(), state, out);
}

std::optional<Automaton::State> TokenMasks::plain_step(Automaton::State state) {
  const auto known = plain_steps_.find(state);
  if (known != plain_steps_.end()) return known->second;
  return plain_steps_[state] = find_plain_step(state);
}

std::optional<Automaton::State> TokenMasks::find_plain_step(Automaton::State state) {
  const Automaton::State to = automaton_.next(state, ' ');
  if (!leads_to(state, 0x20, 0x21, 0, to) || !leads_to(state, 0x23, 0x5B, 0, to) ||
      !leads_to(state, 0x5D, 0x7F, 0, to)) {
    return std::nullopt;
  }
  // The first bytes of longer characters, with what may follow (RFC 3629, 4).
  struct Lead {
    uint8_t low, high, next_low, next_high;
    uint32_t n_tails;
  };
  constexpr Lead kLeads[] = {
      {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xE1, 0x80, 0xBF, 1},
      {0xE3, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1},
      {0xF0, 0xF0, 0x90, 0xBF, 2}, {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
  for (const Lead& lead : kLeads) {
    std::optional<Automaton::State> last;
    for (uint32_t byte = lead.low; byte <= lead.high; ++byte) {
      const Automaton::State behind = automaton_.next(state, static_cast<uint8_t>(byte));
      if (behind == last) continue;
      last = behind;
      if (!leads_to(behind, lead.next_low, lead.next_high, lead.n_tails, to)) return std::nullopt;
    }
  }
  // E2 80 A8 and A9 are U+2028 and U+2029.
  const Automaton::State e2 = automaton_.next(state, 0xE2);
  if (e2 == Automaton::kDead) return to == Automaton::kDead ? std::optional(to) : std::nullopt;
  const Automaton::State e280 = automaton_.next(e2, 0x80);
  if (!leads_to(e2, 0x81, 0xBF, 1, to) || !leads_to(e280, 0x80, 0xA7, 0, to) ||
      !leads_to(e280, 0xAA, 0xBF, 0, to)) {
    return std::nullopt;
  }
  return to;
}

// Do all of these bytes, and any `n_tails` continuation bytes behind them, lead to `to`?
bool TokenMasks::leads_to(Automaton::State state, uint8_t low, uint8_t high, uint32_t n_tails,
                          Automaton::State to) {
  if (state == Automaton::kDead) return to == Automaton::kDead;
  std::optional<Automaton::State> last;
  for (uint32_t byte = low; byte <= high; ++byte) {
    const Automaton::State behind = automaton_.next(state, static_cast<uint8_t>(byte));
    if (behind == last) continue;
    last = behind;
    const bool fits = n_tails == 0 ? behind == to : leads_to(behind, 0x80, 0xBF, n_tails - 1, to);
    if (!fits) return false;
  }
  return true;
}

bool TokenMasks::walk(std::span<const VocabTrie::Node> nodes, Automaton::State state,
                      std::vector<uint32_t>& out) {
  const uint64_t most = automaton_.work() + kMaxWork;
  path_[0] = state;
  for (uint32_t i = 0; i < nodes.size();) {
    const VocabTrie::Node& node = nodes[i];
    const Automaton::State to = automaton_.next(path_[node.depth - 1u], node.byte);
    if (to == Automaton::kDead) {
      if (automaton_.work() > most) return false;
      i = node.skip;
      continue;
    }
    path_[node.depth] = to;
    if (node.token >= 0) out[static_cast<size_t>(node.token) / 32] |= 1u << (node.token % 32);
    ++i;
  }
  return automaton_.work() <= most;
}

}  // namespace hadal::grammar
