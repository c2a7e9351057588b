#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/kv/hazard.h"
#include "engine/kv/node_table.h"

namespace hadal::kv {

// What the learned rule would keep: a set of nodes, and its cheapest leaf at any time.
//
// Leaves (members without a member below) stand in one list per (cell, age bin), and lists by the
// level of their index; a list moves when curves are fitted anew, a node when its bin ends.
class RuleDirectory {
 public:
  explicit RuleDirectory(NodeTable& nodes);

  // A touch at `now_s`: ends the observation that runs, begins one of kind `cell`, makes `at` a
  // member. Children before parents.
  void touch(uint32_t at, uint16_t cell, uint32_t touch_n, double now_s);
  // The node is about to be forgotten. REQUIRES: no member.
  void forget(uint32_t at, double now_s);
  // Takes the cheapest leaf out; kNil if there is no member.
  uint32_t evict(double now_s);
  void remove(uint32_t at, double now_s);
  // Call after every request: moves what has aged, and fits anew now and then.
  void tick(double now_s);

  uint32_t n_members() const { return n_members_; }
  uint64_t bytes() const;
  void check_integrity() const;

 private:
  static constexpr uint32_t kLevels = 4096;
  static constexpr uint32_t kRunningSample = 200'000;  // nodes looked at in a rebuild
  struct AgedList {
    RuleList nodes;
    uint32_t prev = kNil, next = kNil;  // lists of the same level
    uint32_t place = 0;                 // in active_
    uint32_t level = 0;
  };
  void list_add(uint32_t at, double now_s);
  void list_remove(uint32_t at);
  void level_add(uint32_t list);
  void level_remove(uint32_t list);
  void rebuild(double now_s);
  double age(const Node& node, double now_s) const;

  NodeTable& nodes_;
  Hazard hazard_;
  uint32_t n_members_ = 0;
  std::vector<AgedList> lists_;   // [cell * kBins + bin]
  std::vector<uint32_t> active_;  // lists that are not empty
  std::array<uint32_t, kLevels> level_front_;
  std::array<uint64_t, kLevels / 64> level_used_{};
  double swept_at_s_ = 0;
  uint64_t n_requests_ = 0, next_rebuild_ = 64;
  uint32_t sample_phase_ = 0;
};

}  // namespace hadal::kv
