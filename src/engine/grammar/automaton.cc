#include "engine/grammar/automaton.h"

#include <algorithm>

namespace hadal::grammar {

Automaton::Automaton(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  returns_.push_back({});
  intern({});  // kDead
  table_[kDead].fill(kDead);
  closed_.clear();
  close({grammar_->start(0), 0});
  start_ = intern(closed_);
}

uint32_t Automaton::push(uint32_t node, uint32_t parent) {
  const uint64_t key = (uint64_t{node} << 32) | parent;
  const auto [found, is_new] = return_ids_.try_emplace(key, static_cast<uint32_t>(returns_.size()));
  if (is_new) returns_.push_back({node, parent, returns_[parent].depth + 1});
  return found->second;
}

void Automaton::close(Place place) {
  work_.assign(1, place);
  while (!work_.empty()) {
    const Place at = work_.back();
    work_.pop_back();
    if (std::find(closed_.begin(), closed_.end(), at) != closed_.end()) continue;
    if (closed_.size() == kMaxPlaces) {
      overflowed_ = true;
      return;
    }
    closed_.push_back(at);
    const Grammar::Node& node = grammar_->nodes()[at.node];
    if (node.ends && at.stack != 0) {
      const Return& back = returns_[at.stack];
      work_.push_back({back.node, back.parent});
    }
    for (const Grammar::Edge& edge : node.edges) {
      if (edge.kind == Grammar::Edge::Kind::kFree) {
        work_.push_back({edge.to, at.stack});
      } else if (edge.kind == Grammar::Edge::Kind::kRule) {
        // A call in the last place needs no return of its own: lists stay flat.
        const Grammar::Node& after = grammar_->nodes()[edge.to];
        const bool is_last = after.ends && after.edges.empty() && at.stack != 0;
        if (!is_last && returns_[at.stack].depth >= kMaxDepth) {
          overflowed_ = true;
          continue;
        }
        work_.push_back({grammar_->start(edge.rule), is_last ? at.stack : push(edge.to, at.stack)});
      }
    }
  }
}

Automaton::State Automaton::intern(std::vector<Place> places) {
  bool accepts = false;
  std::erase_if(places, [&](const Place& place) {
    const Grammar::Node& node = grammar_->nodes()[place.node];
    accepts |= node.ends && place.stack == 0;
    return std::none_of(node.edges.begin(), node.edges.end(), [](const Grammar::Edge& edge) {
      return edge.kind == Grammar::Edge::Kind::kBytes;
    });
  });
  std::sort(places.begin(), places.end());
  uint64_t hash = accepts ? 1469598103934665603u : 14695981039346656037u;
  for (const Place& place : places) {
    hash = (hash ^ ((uint64_t{place.node} << 32) | place.stack)) * 1099511628211u;
  }
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (places_[it->second] == places && accepts_[it->second] == accepts) return it->second;
  }
  if (table_.size() == kMaxStates) {
    overflowed_ = true;
    return kDead;
  }
  const auto state = static_cast<State>(table_.size());
  table_.emplace_back().fill(kUnknown);
  places_.push_back(std::move(places));
  accepts_.push_back(accepts);
  by_hash_.emplace(hash, state);
  return state;
}

Automaton::State Automaton::make_next(State state, uint8_t byte) {
  closed_.clear();
  for (const Place& place : places_[state]) {
    for (const Grammar::Edge& edge : grammar_->nodes()[place.node].edges) {
      if (edge.kind == Grammar::Edge::Kind::kBytes && edge.low <= byte && byte <= edge.high) {
        close({edge.to, place.stack});
      }
    }
  }
  const State to = closed_.empty() ? kDead : intern(closed_);
  table_[state][byte] = to;
  return to;
}

Automaton::State Automaton::next(State state, std::string_view bytes) {
  for (const char c : bytes) {
    if (state == kDead) return kDead;
    state = next(state, static_cast<uint8_t>(c));
  }
  return state;
}

}  // namespace hadal::grammar
