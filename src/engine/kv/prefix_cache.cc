// Two directories of names are kept side by side, each as large as the cache: what plain LRU would
// hold and what the learned rule would hold. The one whose directory had more hits lately leads,
// and the store gives up what is not in it ("strays"), oldest first. The other costs names only.
//
// By its flags, a node stands in at most one list on each side:
//   LRU's side    in kInLru: `recent`; else resident and not held: `lru_strays`;
//                 else in no directory and not resident: `ghosts`
//   rule's side   in kInRule: the directory's own lists; else resident and not held: `rule_strays`
// A touch goes from the deepest block of a chain to its first, and the rule gives up leaves only:
// in every list a child is before its parent, so that no evicted node has a resident child.
#include "engine/kv/prefix_cache.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "base/core/check.h"
#include "engine/kv/node_table.h"
#include "engine/kv/rule_directory.h"

namespace hadal::kv {
namespace {

// Hits of both directories fade with this half-life, in requests.
const double kFade = std::exp2(-1.0 / 1000.0);

uint32_t ghosts_for(const PrefixCacheOptions& options) {
  if (options.n_ghosts) return *options.n_ghosts;
  const uint32_t n = options.n_blocks;
  if (n > 1'000'000) return n / 5;
  return std::max(40'000u, 4 * n);
}

bool is_stray(const Node& node) {
  return node.has(kResident) && !node.has(kHeld);
}

}  // namespace

struct PrefixCache::State {
  explicit State(const PrefixCacheOptions& o)
      : options(o), nodes(o.n_blocks + std::max(ghosts_for(o), 64u)), room(o.n_blocks) {
    if (o.policy == Policy::kTurnHazard) rule = std::make_unique<RuleDirectory>(nodes);
  }
  PrefixCacheOptions options;
  NodeTable nodes;
  AgeList recent, lru_strays, ghosts;
  RuleList rule_strays;
  std::unique_ptr<RuleDirectory> rule;  // null: plain LRU
  uint32_t room;                        // of a directory: blocks that cached prefixes can have
  uint32_t n_resident = 0, n_held = 0;
  uint64_t n_evicted = 0;
  double lru_hits = 0, rule_hits = 0;
  double now_s = 0;
  std::vector<uint32_t> touched;  // scratch

  bool rule_leads() const { return rule && rule_hits > lru_hits; }
  AgeList* list_of(const Node& node) {
    if (node.has(kInLru)) return &recent;
    if (is_stray(node)) return &lru_strays;
    if (!node.has(kInRule) && !node.has(kResident)) return &ghosts;
    return nullptr;
  }
  void change(uint32_t at, uint8_t set, uint8_t clear);
  uint32_t add(const BlockHash& hash, uint32_t parent);
  void add_branch(uint32_t parent);
  void forget_oldest_ghost(uint32_t keep);
  void lru_pop();
  bool rule_pop();
  void trim(uint32_t to);
};

// Sets flags of a node (kInRule is the rule's own) and moves it to the lists where it then belongs.
void PrefixCache::State::change(uint32_t at, uint8_t set, uint8_t clear) {
  Node& node = nodes[at];
  AgeList* const before = list_of(node);
  const bool was_stray = is_stray(node) && !node.has(kInRule);
  node.flags = static_cast<uint8_t>((node.flags & ~clear) | set);
  AgeList* const after = list_of(node);
  const bool stray = is_stray(node) && !node.has(kInRule);
  if (before != after) {
    if (before != nullptr) before->erase(nodes, at);
    if (after != nullptr) after->push_back(nodes, at);
  }
  if (was_stray && !stray) rule_strays.erase(nodes, at);
  if (!was_stray && stray) rule_strays.push_back(nodes, at);
}

void PrefixCache::State::lru_pop() {
  change(recent.front, 0, kInLru);
}

bool PrefixCache::State::rule_pop() {
  if (!rule || rule->n_members() == 0) return false;
  const uint32_t at = rule->evict(now_s);
  Node& node = nodes[at];
  if (is_stray(node)) rule_strays.push_back(nodes, at);
  // Was in no list on LRU's side if only the rule had it.
  if (!node.has(kInLru) && !node.has(kResident)) ghosts.push_back(nodes, at);
  return true;
}

void PrefixCache::State::trim(uint32_t to) {
  while (recent.size > to) lru_pop();
  while (rule && rule->n_members() > to) rule_pop();
}

// Never `keep`.
void PrefixCache::State::forget_oldest_ghost(uint32_t keep) {
  while (true) {
    // A ghost whose children are known still (they were renewed while it was not, or it belongs to
    // the chain that is being added) goes round again.
    for (uint32_t tries = ghosts.size; tries > 0; --tries) {
      const uint32_t at = ghosts.front;
      ghosts.erase(nodes, at);
      if (nodes[at].n_children == 0 && at != keep) {
        if (rule) rule->forget(at, now_s);
        nodes.remove(at);
        return;
      }
      ghosts.push_back(nodes, at);
    }
    // With few names to spare (pools of more than a million blocks) the directory that does not
    // lead is cut short of the cache's size.
    if (rule_leads() ? recent.size > 0 : !rule_pop()) {
      HADAL_CHECK(recent.size > 0, "no name to forget");
      lru_pop();
    } else if (rule_leads()) {
      HADAL_CHECK(rule_pop(), "no name to forget");
    }
  }
}

uint32_t PrefixCache::State::add(const BlockHash& hash, uint32_t parent) {
  while (nodes.n_nodes() >= nodes.max_nodes()) forget_oldest_ghost(parent);
  const uint32_t at = nodes.add(hash, parent);
  ghosts.push_back(nodes, at);  // where a node without flags belongs
  if (parent != kNil) nodes[parent].last_child = at;
  return at;
}

void PrefixCache::State::add_branch(uint32_t parent) {
  if (parent == kNil || nodes[parent].n_branches == 15) return;
  nodes[parent].n_branches = static_cast<uint8_t>((nodes[parent].n_branches + 1) & 15);
}

PrefixCache::PrefixCache(const PrefixCacheOptions& options)
    : state_(std::make_unique<State>(options)) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Match PrefixCache::match(std::span<const BlockHash> chain) const {
  Match match;
  for (const BlockHash& hash : chain) {
    const uint32_t at = state_->nodes.find(hash);
    if (at == kNil) break;
    if (match.n_resident == match.n_known && state_->nodes[at].has(kResident)) ++match.n_resident;
    ++match.n_known;
  }
  return match;
}

NodeId PrefixCache::find(const BlockHash& hash) const {
  return NodeId{state_->nodes.find(hash)};
}

BlockId PrefixCache::block_of(NodeId node) const {
  return BlockId{state_->nodes[static_cast<uint32_t>(node)].block};
}

NodeId PrefixCache::latest_child(NodeId node) const {
  const auto parent = static_cast<uint32_t>(node);
  const uint32_t child = state_->nodes[parent].last_child;
  if (child == kNil || child >= state_->nodes.n_slots()) return kNoNode;
  const Node& found = state_->nodes[child];
  return found.has(kResident) && found.parent == parent ? NodeId{child} : kNoNode;
}

NodeId PrefixCache::insert(const BlockHash& hash, NodeId parent, BlockId block) {
  State& s = *state_;
  uint32_t at = s.nodes.find(hash);
  if (at == kNil) {
    at = s.add(hash, static_cast<uint32_t>(parent));
    s.add_branch(static_cast<uint32_t>(parent));
  }
  HADAL_CHECK(!s.nodes[at].has(kResident), "a block name twice in the pool");
  s.change(at, kResident | kHeld, 0);
  s.nodes[at].block = static_cast<uint32_t>(block);
  ++s.n_resident;
  ++s.n_held;
  return NodeId{at};
}

void PrefixCache::hold(NodeId id) {
  const auto at = static_cast<uint32_t>(id);
  HADAL_CHECK(is_stray(state_->nodes[at]), "hold");
  state_->change(at, kHeld, 0);
  ++state_->n_held;
}

void PrefixCache::unhold(NodeId id) {
  const auto at = static_cast<uint32_t>(id);
  HADAL_CHECK(state_->nodes[at].has(kHeld), "unhold");
  state_->change(at, 0, kHeld);
  --state_->n_held;
}

Arrival PrefixCache::arrive(std::span<const BlockHash> chain, double now_s) {
  State& s = *state_;
  Arrival arrival;
  uint32_t in_lru = 0, in_rule = 0, last = kNil;
  for (const BlockHash& hash : chain) {
    const uint32_t at = s.nodes.find(hash);
    if (at == kNil) break;
    const Node& node = s.nodes[at];
    if (in_lru == arrival.n_known && node.has(kInLru)) ++in_lru;
    if (in_rule == arrival.n_known && node.has(kInRule)) ++in_rule;
    ++arrival.n_known;
    last = at;
  }
  s.lru_hits = s.lru_hits * kFade + in_lru;
  s.rule_hits = s.rule_hits * kFade + in_rule;
  if (last == kNil) return arrival;
  // The next turn of a conversation begins with nearly all of the turn before.
  const Node& before = s.nodes[last];
  const uint32_t m = arrival.n_known;
  if (before.n_touches > 0 && before.touch_n <= m + 2 && (m > 1 || before.touch_n == 1)) {
    arrival.turn = before.turn + 1u;
    arrival.has_gap = true;
    arrival.gap_s = std::max(0.0, now_s - before.touched / 100.0);
  }
  return arrival;
}

void PrefixCache::touch(std::span<const BlockHash> chain, const Touch& touch) {
  State& s = *state_;
  s.now_s = std::max(s.now_s, touch.now_s);
  s.touched.clear();
  uint32_t parent = kNil;
  for (const BlockHash& hash : chain) {
    uint32_t at = s.nodes.find(hash);
    if (at == kNil) {
      at = s.add(hash, parent);
      // A partial block is no branch: the next turn has it whole, under another name.
      if (!touch.last_is_partial || &hash != &chain.back()) s.add_branch(parent);
    } else if (s.list_of(s.nodes[at]) == &s.ghosts) {  // not to be forgotten just now
      s.ghosts.erase(s.nodes, at);
      s.ghosts.push_back(s.nodes, at);
    }
    if (parent != kNil) s.nodes[parent].last_child = at;
    s.touched.push_back(at);
    parent = at;
  }
  TouchFeatures f;
  f.turn = touch.arrival.turn;
  f.has_gap = touch.arrival.has_gap;
  f.gap_s = touch.arrival.gap_s;
  f.n_blocks = std::max<uint32_t>(touch.n_blocks, static_cast<uint32_t>(chain.size()));
  f.n_new_blocks = f.n_blocks - std::min(f.n_blocks, touch.arrival.n_known);
  f.n_output = touch.n_output;
  for (size_t j = chain.size(); j-- > 0;) {
    const uint32_t at = s.touched[j];
    Node& node = s.nodes[at];
    if (node.has(kInLru)) {
      s.recent.erase(s.nodes, at);
      s.recent.push_back(s.nodes, at);
    } else {
      s.change(at, kInLru, 0);
    }
    if (s.rule) {
      f.n_branches = std::max<uint32_t>(f.n_branches, node.n_branches);
      f.n_touches = std::min(node.n_touches + 1u, 255u);
      f.last_partial = touch.last_is_partial && j + 1 == chain.size();
      if (is_stray(node) && !node.has(kInRule)) s.rule_strays.erase(s.nodes, at);
      s.rule->touch(at, Hazard::cell_of(f), f.n_blocks, s.now_s);
      node.turn = static_cast<uint8_t>(std::min(f.turn, 15u) & 15);
    } else {
      node.touched = static_cast<uint32_t>(s.now_s * 100.0);
    }
  }
  s.trim(s.room);
  if (s.rule) s.rule->tick(s.now_s);
}

std::optional<BlockId> PrefixCache::evict() {
  State& s = *state_;
  if (s.n_held == s.n_resident) return std::nullopt;
  // Blocks without names take room from cached prefixes: both directories live with the same.
  s.room = std::min(s.options.n_blocks, s.n_resident);
  const bool by_rule = s.rule_leads();
  if (by_rule) {
    while (s.rule_strays.size == 0) s.rule_pop();
  } else {
    while (s.lru_strays.size == 0) s.lru_pop();
  }
  const uint32_t at = by_rule ? s.rule_strays.front : s.lru_strays.front;
  const BlockId block{s.nodes[at].block};
  s.nodes[at].block = kNil;
  s.change(at, 0, kResident);
  --s.n_resident;
  ++s.n_evicted;
  return block;
}

uint32_t PrefixCache::n_resident() const {
  return state_->n_resident;
}
uint32_t PrefixCache::n_held() const {
  return state_->n_held;
}
uint64_t PrefixCache::n_evicted() const {
  return state_->n_evicted;
}
uint64_t PrefixCache::bytes() const {
  return state_->nodes.bytes() + (state_->rule ? state_->rule->bytes() : 0);
}
bool PrefixCache::rule_leads() const {
  return state_->rule_leads();
}
bool PrefixCache::wanted(NodeId node) const {
  return state_->nodes[static_cast<uint32_t>(node)].has(rule_leads() ? kInRule : kInLru);
}

void PrefixCache::check_integrity() const {
  State& s = *state_;
  uint32_t n_known = 0, n_resident = 0, n_held = 0, n_lru_strays = 0, n_rule_strays = 0;
  uint32_t n_ghosts = 0, n_lru = 0;
  for (uint32_t at = 0; at < s.nodes.n_slots(); ++at) {
    const Node& node = s.nodes[at];
    if (!node.has(kKnown)) continue;
    ++n_known;
    HADAL_CHECK(s.nodes.find(node.hash) == at, fmt::format("node {} is not found by name", at));
    HADAL_CHECK(node.has(kResident) == (node.block != kNil), fmt::format("node {}: block", at));
    HADAL_CHECK(node.has(kResident) || !node.has(kHeld), fmt::format("node {} is held only", at));
    const AgeList* list = s.list_of(node);
    n_resident += node.has(kResident);
    n_held += node.has(kHeld);
    n_lru += list == &s.recent;
    n_lru_strays += list == &s.lru_strays;
    n_ghosts += list == &s.ghosts;
    n_rule_strays += is_stray(node) && !node.has(kInRule);
    if (node.parent == kNil) continue;
    const Node& up = s.nodes[node.parent];
    HADAL_CHECK(up.has(kKnown), fmt::format("node {} has lost its parent", at));
    HADAL_CHECK(!node.has(kResident) || up.has(kResident),
                fmt::format("node {} is here, its parent {} is not", at, node.parent));
  }
  HADAL_CHECK(n_known == s.nodes.n_nodes() && n_resident == s.n_resident && n_held == s.n_held,
              fmt::format("names {} of {}, resident {} of {}, held {} of {}", n_known,
                          s.nodes.n_nodes(), n_resident, s.n_resident, n_held, s.n_held));
  HADAL_CHECK(
      n_lru == s.recent.size && n_lru_strays == s.lru_strays.size && n_ghosts == s.ghosts.size &&
          n_rule_strays == s.rule_strays.size,
      fmt::format("lists: {} {} {} {}, counted {} {} {} {}", s.recent.size, s.lru_strays.size,
                  s.ghosts.size, s.rule_strays.size, n_lru, n_lru_strays, n_ghosts, n_rule_strays));
  if (s.rule) s.rule->check_integrity();
}

}  // namespace hadal::kv
