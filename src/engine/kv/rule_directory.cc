#include "engine/kv/rule_directory.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "base/core/check.h"

namespace hadal::kv {
namespace {

// 150 levels for each doubling: an index is told from one 0.5 % larger.
uint32_t level_of(float index, uint32_t n_levels) {
  const double level = (std::log2(std::max(static_cast<double>(index), 1e-12)) + 26.0) * 150.0;
  return static_cast<uint32_t>(std::clamp(level, 0.0, static_cast<double>(n_levels - 1)));
}

constexpr double kSweepEvery_s = 2;  // half the first bin

}  // namespace

RuleDirectory::RuleDirectory(NodeTable& nodes)
    : nodes_(nodes), lists_(size_t{Hazard::kCells} * Hazard::kBins) {
  level_front_.fill(kNil);
}

double RuleDirectory::age(const Node& node, double now_s) const {
  return std::max(0.0, now_s - node.touched / 100.0);
}

void RuleDirectory::level_add(uint32_t id) {
  AgedList& list = lists_[id];
  list.level = level_of(
      hazard_.index(static_cast<uint16_t>(id / Hazard::kBins), id % Hazard::kBins), kLevels);
  list.prev = kNil;
  list.next = level_front_[list.level];
  if (list.next != kNil) lists_[list.next].prev = id;
  level_front_[list.level] = id;
  level_used_[list.level / 64] |= uint64_t{1} << (list.level % 64);
}

void RuleDirectory::level_remove(uint32_t id) {
  AgedList& list = lists_[id];
  (list.prev == kNil ? level_front_[list.level] : lists_[list.prev].next) = list.next;
  if (list.next != kNil) lists_[list.next].prev = list.prev;
  if (level_front_[list.level] == kNil)
    level_used_[list.level / 64] &= ~(uint64_t{1} << (list.level % 64));
}

void RuleDirectory::list_add(uint32_t at, double now_s) {
  Node& node = nodes_[at];
  node.bin = static_cast<uint8_t>(Hazard::bin_of(age(node, now_s)));
  const uint32_t id = node.cell * Hazard::kBins + node.bin;
  AgedList& list = lists_[id];
  if (list.nodes.size == 0) {
    list.place = static_cast<uint32_t>(active_.size());
    active_.push_back(id);
    level_add(id);
  }
  list.nodes.push_back(nodes_, at);
}

void RuleDirectory::list_remove(uint32_t at) {
  const uint32_t id = nodes_[at].cell * Hazard::kBins + nodes_[at].bin;
  AgedList& list = lists_[id];
  list.nodes.erase(nodes_, at);
  if (list.nodes.size > 0) return;
  level_remove(id);
  active_[list.place] = active_.back();
  lists_[active_.back()].place = list.place;
  active_.pop_back();
}

void RuleDirectory::touch(uint32_t at, uint16_t cell, uint32_t touch_n, double now_s) {
  Node& node = nodes_[at];
  if (node.has(kInRule) && node.n_rule_children == 0) list_remove(at);
  if (node.n_touches > 0) hazard_.end(node.cell, age(node, now_s), 1.0 / node.touch_n, true);
  node.cell = cell;
  node.touch_n = static_cast<uint16_t>(std::min(touch_n, 65535u));
  node.touched = static_cast<uint32_t>(now_s * 100.0);
  if (node.n_touches < 255) ++node.n_touches;
  if (!node.has(kInRule)) {
    node.flags |= kInRule;
    ++n_members_;
    if (node.parent != kNil) {
      Node& up = nodes_[node.parent];
      if (up.has(kInRule) && up.n_rule_children == 0) list_remove(node.parent);
      ++up.n_rule_children;
    }
  }
  if (node.n_rule_children == 0) list_add(at, now_s);
}

void RuleDirectory::forget(uint32_t at, double now_s) {
  const Node& node = nodes_[at];
  HADAL_CHECK(!node.has(kInRule), "forgetting a member");
  if (node.n_touches > 0) hazard_.end(node.cell, age(node, now_s), 1.0 / node.touch_n, false);
}

void RuleDirectory::remove(uint32_t at, double now_s) {
  Node& node = nodes_[at];
  HADAL_CHECK(node.has(kInRule) && node.n_rule_children == 0, "removing an inner member");
  list_remove(at);
  node.flags &= static_cast<uint8_t>(~kInRule);
  --n_members_;
  if (node.parent == kNil) return;
  Node& up = nodes_[node.parent];
  if (--up.n_rule_children == 0 && up.has(kInRule)) list_add(node.parent, now_s);
}

uint32_t RuleDirectory::evict(double now_s) {
  for (uint32_t word = 0; word < level_used_.size(); ++word) {
    if (level_used_[word] == 0) continue;
    const uint32_t level = word * 64 + static_cast<uint32_t>(std::countr_zero(level_used_[word]));
    const uint32_t at = lists_[level_front_[level]].nodes.front;
    remove(at, now_s);
    return at;
  }
  return kNil;
}

void RuleDirectory::tick(double now_s) {
  ++n_requests_;
  if (now_s - swept_at_s_ >= kSweepEvery_s) {
    swept_at_s_ = now_s;
    const std::vector<uint32_t> lists = active_;
    for (const uint32_t id : lists) {
      const uint32_t bin = id % Hazard::kBins;
      if (bin + 1 == Hazard::kBins) continue;
      while (lists_[id].nodes.size > 0) {
        const uint32_t at = lists_[id].nodes.front;
        if (age(nodes_[at], now_s) < Hazard::bin_begin(bin + 1)) break;
        list_remove(at);
        list_add(at, now_s);
      }
    }
  }
  if (n_requests_ >= next_rebuild_) {
    // Each 64 requests at first, then whenever the data have grown by a hundredth.
    next_rebuild_ = n_requests_ + std::max<uint64_t>(64, n_requests_ / 100);
    rebuild(now_s);
  }
}

void RuleDirectory::rebuild(double now_s) {
  hazard_.begin_rebuild();
  const uint32_t n = nodes_.n_slots();
  const uint32_t stride = n / kRunningSample + 1;
  sample_phase_ = (sample_phase_ + 1) % stride;
  for (uint32_t at = sample_phase_; at < n; at += stride) {
    const Node& node = nodes_[at];
    if (!node.has(kKnown) || node.n_touches == 0) continue;
    hazard_.still_running(node.cell, age(node, now_s), static_cast<double>(stride) / node.touch_n);
  }
  hazard_.finish_rebuild();
  for (const uint32_t id : active_) level_remove(id);
  for (const uint32_t id : active_) level_add(id);
}

uint64_t RuleDirectory::bytes() const {
  return hazard_.bytes() + lists_.capacity() * sizeof(AgedList) +
         active_.capacity() * sizeof(uint32_t);
}

void RuleDirectory::check_integrity() const {
  uint32_t n_members = 0, n_leaves = 0, n_listed = 0;
  std::vector<uint32_t> n_children(nodes_.n_slots());
  for (uint32_t at = 0; at < nodes_.n_slots(); ++at) {
    const Node& node = nodes_[at];
    if (!node.has(kInRule)) continue;
    ++n_members;
    if (node.n_rule_children == 0) ++n_leaves;
    if (node.parent != kNil) ++n_children[node.parent];
  }
  for (uint32_t at = 0; at < nodes_.n_slots(); ++at) {
    HADAL_CHECK(nodes_[at].n_rule_children == n_children[at],
                fmt::format("node {}: {} members below, counted {}", at, n_children[at],
                            nodes_[at].n_rule_children));
  }
  for (const uint32_t id : active_) n_listed += lists_[id].nodes.size;
  HADAL_CHECK(n_members == n_members_ && n_listed == n_leaves,
              fmt::format("members {} of {}, leaves {} in lists {}", n_members, n_members_,
                          n_leaves, n_listed));
}

}  // namespace hadal::kv
