#include "engine/grammar/automaton.h"

#include <algorithm>

namespace hadal::grammar {
namespace {

constexpr size_t kSeenBits = 12, kSeen = size_t{1} << kSeenBits;

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), seen_(kSeen) {
  returns_.push_back({});
  intern({});  // kDead
  table_[kDead].fill(kDead);
  begin_closing();
  close({grammar_->start(0), 0});
  start_ = intern(closed_);
}

uint32_t Automaton::push(uint32_t node, uint32_t parent) {
  const uint64_t key = (uint64_t{node} << 32) | parent;
  const auto [found, is_new] = return_ids_.try_emplace(key, static_cast<uint32_t>(returns_.size()));
  if (is_new) returns_.push_back({node, parent, returns_[parent].depth + 1});
  return found->second;
}

void Automaton::begin_closing() {
  closed_.clear();
  ++stamp_;
}

bool Automaton::is_new(Place place) {
  static_assert(kMaxPlaces <= kSeen / 4);
  uint64_t hash = ((uint64_t{place.node} << 32) | place.stack) * 0x9E3779B97F4A7C15u;
  for (size_t i = hash >> (64 - kSeenBits);; i = (i + 1) % kSeen) {
    Seen& seen = seen_[i];
    if (seen.stamp != stamp_) {
      seen = {place, stamp_};
      return true;
    }
    if (seen.place == place) return false;
  }
}

void Automaton::close(Place place) {
  work_.assign(1, place);
  while (!work_.empty()) {
    const Place at = work_.back();
    work_.pop_back();
    ++work_done_;
    if (!is_new(at)) continue;
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

// All bytes around `byte` that fit the same edges lead to the same state.
Automaton::State Automaton::make_next(State state, uint8_t byte) {
  begin_closing();
  uint8_t low = 0, high = 255;
  for (const Place& place : places_[state]) {
    for (const Grammar::Edge& edge : grammar_->nodes()[place.node].edges) {
      if (edge.kind != Grammar::Edge::Kind::kBytes) continue;
      if (byte < edge.low) {
        high = std::min<uint8_t>(high, edge.low - 1);
      } else if (edge.high < byte) {
        low = std::max<uint8_t>(low, edge.high + 1);
      } else {
        low = std::max(low, edge.low);
        high = std::min(high, edge.high);
        close({edge.to, place.stack});
      }
    }
  }
  const State to = closed_.empty() ? kDead : intern(closed_);
  std::fill(table_[state].begin() + low, table_[state].begin() + high + 1, to);
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
