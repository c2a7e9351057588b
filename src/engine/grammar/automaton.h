#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/grammar/grammar.h"

namespace hadal::grammar {

// What may still come of a grammar, as states that are made when they are first reached. A state is
// a set of places: a node and the nodes to return to. State 0 is dead.
//
// Not thread-safe. Memory is bounded: a state has kMaxPlaces places, a place kMaxDepth returns, and
// there are kMaxStates states; beyond, the byte is refused (kDead), never let through. work()
// counts the places that were looked at, for those who bound time.
class Automaton {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;
  static constexpr size_t kMaxPlaces = 1024, kMaxDepth = 256, kMaxStates = 1u << 15;

  explicit Automaton(std::shared_ptr<const Grammar> grammar);

  State start() const { return start_; }
  State next(State state, uint8_t byte) {
    const State known = table_[state][byte];
    return known != kUnknown ? known : make_next(state, byte);
  }
  // kDead if one of the bytes does not fit.
  State next(State state, std::string_view bytes);
  bool accepts(State state) const { return accepts_[state]; }
  size_t n_states() const { return table_.size(); }
  // A limit was met: some continuation that the grammar has was refused.
  bool overflowed() const { return overflowed_; }
  uint64_t work() const { return work_done_; }

 private:
  static constexpr State kUnknown = ~State{0};
  // Returns are a tree that all states share; 0 is the empty stack.
  struct Return {
    uint32_t node = 0, parent = 0, depth = 0;
  };
  struct Place {
    uint32_t node = 0, stack = 0;
    auto operator<=>(const Place&) const = default;
  };
  State make_next(State state, uint8_t byte);
  State intern(std::vector<Place> places);
  uint32_t push(uint32_t node, uint32_t parent);
  void begin_closing();
  // Adds `place` and everything that is reached from it without reading.
  void close(Place place);
  bool is_new(Place place);

  const std::shared_ptr<const Grammar> grammar_;
  std::vector<Return> returns_;
  std::unordered_map<uint64_t, uint32_t> return_ids_;
  std::vector<std::vector<Place>> places_;  // by state, sorted; only those with byte edges or ends
  std::vector<std::array<State, 256>> table_;
  std::vector<bool> accepts_;
  std::unordered_multimap<uint64_t, State> by_hash_;
  std::vector<Place> work_, closed_;
  // The members of closed_, as a hash table: an entry counts if its stamp is the present one.
  struct Seen {
    Place place;
    uint32_t stamp = 0;
  };
  std::vector<Seen> seen_;
  uint32_t stamp_ = 0;
  uint64_t work_done_ = 0;
  State start_ = kDead;
  bool overflowed_ = false;
};

}  // namespace hadal::grammar
