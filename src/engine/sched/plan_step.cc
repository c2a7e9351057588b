// One pass per kind of care. A pass takes from what the passes before it left; nothing is taken
// back but by preemption, which may remove chunks that were planned for the victim.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/core/check.h"
#include "engine/sched/plan.h"

namespace hadal::sched {
namespace {

uint32_t blocks_for(const SchedConfig& config, uint32_t n_tokens) {
  return (n_tokens + config.block_tokens - 1) / config.block_tokens;
}

// Rows of the next chunk of a sequence that stands at `at`: as many as are known and allowed. A
// chunk that cannot reach the end stops at a block's end, where state can be kept.
uint32_t chunk_rows(const SchedConfig& config, uint32_t at, uint32_t n_tokens, uint32_t cut_at,
                    uint32_t budget) {
  uint32_t end = std::min(n_tokens, at + std::min(config.prefill_chunk, budget));
  if (at < cut_at && end > cut_at) end = cut_at;
  if (end < n_tokens) {
    const uint32_t aligned = end / config.block_tokens * config.block_tokens;
    if (aligned > at) end = aligned;
  }
  return end - at;
}

class Planner {
 public:
  Planner(const SchedConfig& config, const Supply& supply, std::span<const RunningView> running,
          std::span<const WaitingView> waiting)
      : config_(config),
        running_(running),
        waiting_(waiting),
        blocks_(supply.n_blocks),
        slots_(supply.n_slots),
        rows_(config.step_tokens),
        gone_(running.size(), false),
        n_running_(static_cast<uint32_t>(running.size())) {}

  StepPlan plan() {
    expire();
    rank();
    for (const uint32_t i : order_) {
      if (running_[i].decoding) run(i);
    }
    for (const uint32_t i : order_) {
      if (!running_[i].decoding) run(i);
    }
    for (const WaitingView& view : waiting_) {
      if (view.expired) continue;
      if (!admit(view)) break;  // nobody overtakes: a big request would wait for ever
    }
    return std::move(plan_);
  }

 private:
  void expire() {
    for (uint32_t i = 0; i < running_.size(); ++i) {
      if (!running_[i].expired) continue;
      plan_.expire.push_back(running_[i].seq);
      leave(i);
    }
    for (const WaitingView& view : waiting_) {
      if (view.expired) plan_.expire.push_back(view.seq);
    }
  }

  // Highest priority first; among equals who has had no rows for longest, then who came first.
  void rank() {
    for (uint32_t i = 0; i < running_.size(); ++i) {
      if (running_[i].runnable && !gone_[i]) order_.push_back(i);
    }
    const auto key = [&](uint32_t i) {
      const RunningView& v = running_[i];
      return std::tuple(-int64_t{v.priority}, v.last_step, v.arrival);
    };
    const auto before = [&](uint32_t a, uint32_t b) { return key(a) < key(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), before))
      std::sort(order_.begin(), order_.end(), before);
  }

  void leave(uint32_t i) {
    gone_[i] = true;
    blocks_ += running_[i].n_exclusive;
    ++slots_;
    --n_running_;
  }

  // Who has to go so that `of` can go on: lower priority first, then paused ones, then the
  // youngest. Never one that outranks `of`.
  int32_t victim(int32_t priority, uint64_t arrival, bool strictly_lower) const {
    int32_t best = -1;
    const auto key = [&](uint32_t i) {
      const RunningView& v = running_[i];
      return std::tuple(v.priority, v.runnable, ~v.arrival);
    };
    for (uint32_t i = 0; i < running_.size(); ++i) {
      const RunningView& v = running_[i];
      if (gone_[i]) continue;
      const bool lower = v.priority < priority;
      const bool same = v.priority == priority && (v.arrival > arrival || !v.runnable);
      if (!(lower || (same && !strictly_lower)) || v.arrival == arrival) continue;
      if (best < 0 || key(i) < key(static_cast<uint32_t>(best))) best = static_cast<int32_t>(i);
    }
    return best;
  }

  void preempt(uint32_t i) {
    const SeqKey seq = running_[i].seq;
    plan_.preempt.push_back(seq);
    for (size_t c = 0; c < plan_.chunks.size(); ++c) {
      if (plan_.chunks[c].seq != seq) continue;
      rows_ += plan_.chunks[c].n_rows;
      blocks_ += plan_.chunks[c].n_new_blocks;
      plan_.chunks.erase(plan_.chunks.begin() + static_cast<std::ptrdiff_t>(c));
      break;
    }
    leave(i);
  }

  bool make_room(uint32_t n_blocks, int32_t priority, uint64_t arrival, bool strictly_lower) {
    while (blocks_ < n_blocks) {
      const int32_t i = victim(priority, arrival, strictly_lower);
      if (i < 0) return false;
      preempt(static_cast<uint32_t>(i));
    }
    return true;
  }

  void run(uint32_t i) {
    const RunningView& v = running_[i];
    if (gone_[i] || !v.runnable || rows_ == 0) return;
    HADAL_CHECK(v.n_computed < v.n_tokens, "a running sequence has nothing to run");
    const uint32_t n = chunk_rows(config_, v.n_computed, v.n_tokens, v.cut_at, rows_);
    const uint32_t need = blocks_for(config_, v.n_computed + n);
    const uint32_t n_new = need > v.n_blocks ? need - v.n_blocks : 0;
    if (!make_room(n_new, v.priority, v.arrival, false)) {
      // The lowest of all and no room: it makes way for those above it.
      preempt(i);
      return;
    }
    add(v.seq, v.n_computed, n, n_new, v.n_tokens);
  }

  bool admit(const WaitingView& v) {
    const auto can_preempt = [&] {
      return config_.preempt_for_priority && victim(v.priority, v.arrival, true) >= 0;
    };
    if (rows_ == 0) return false;
    while (n_running_ >= config_.max_running || slots_ == 0) {
      if (!can_preempt()) return false;
      preempt(static_cast<uint32_t>(victim(v.priority, v.arrival, true)));
    }
    // Room for all that it knows and the next token, beyond what running prefills still need:
    // prompts never push each other out half way.
    const uint32_t whole = blocks_for(config_, v.n_tokens + 1);
    const uint32_t fresh = whole - std::min(whole, v.n_hit_blocks);
    const uint32_t wanted = fresh + v.n_hit_cached + promised();
    if (blocks_ < wanted) {
      if (!config_.preempt_for_priority || reachable(v) < wanted) return false;
      while (blocks_ < fresh + v.n_hit_cached + promised()) {
        const int32_t i = victim(v.priority, v.arrival, true);
        if (i < 0) return false;
        preempt(static_cast<uint32_t>(i));
      }
    }
    if (rows_ == 0) return false;
    const uint32_t n = chunk_rows(config_, v.start, v.n_tokens, v.cut_at, rows_);
    const uint32_t need = blocks_for(config_, v.start + n);
    const uint32_t n_new = need > v.n_hit_blocks ? need - v.n_hit_blocks : 0;
    blocks_ -= v.n_hit_cached;
    --slots_;
    ++n_running_;
    reserved_ += fresh - n_new;
    plan_.admit.push_back(v.seq);
    add(v.seq, v.start, n, n_new, v.n_tokens);
    return true;
  }

  // Blocks that running prompts, and those admitted in this step, will want until they are through.
  uint32_t promised() const {
    uint32_t n = reserved_;
    for (uint32_t i = 0; i < running_.size(); ++i) {
      const RunningView& v = running_[i];
      if (gone_[i] || v.decoding) continue;
      const uint32_t whole = blocks_for(config_, v.n_tokens + 1);
      uint32_t has = v.n_blocks;
      for (const Chunk& c : plan_.chunks) {
        if (c.seq == v.seq) has += c.n_new_blocks;
      }
      n += whole > has ? whole - has : 0;
    }
    return n;
  }

  // Blocks if everyone of lower priority left.
  uint32_t reachable(const WaitingView& v) const {
    uint32_t n = blocks_;
    for (uint32_t i = 0; i < running_.size(); ++i) {
      if (!gone_[i] && running_[i].priority < v.priority) n += running_[i].n_exclusive;
    }
    return n;
  }

  void add(SeqKey seq, uint32_t begin, uint32_t n_rows, uint32_t n_new, uint32_t n_tokens) {
    plan_.chunks.push_back({seq, begin, n_rows, n_new, begin + n_rows == n_tokens});
    rows_ -= n_rows;
    blocks_ -= n_new;
  }

  const SchedConfig& config_;
  std::span<const RunningView> running_;
  std::span<const WaitingView> waiting_;
  uint32_t blocks_, slots_, rows_;
  std::vector<bool> gone_;
  uint32_t n_running_;
  uint32_t reserved_ = 0;
  std::vector<uint32_t> order_;
  StepPlan plan_;
};

}  // namespace

uint32_t StepPlan::n_rows() const {
  uint32_t n = 0;
  for (const Chunk& chunk : chunks) n += chunk.n_rows;
  return n;
}

StepPlan plan_step(const SchedConfig& config, const Supply& supply,
                   std::span<const RunningView> running, std::span<const WaitingView> waiting) {
  return Planner(config, supply, running, waiting).plan();
}

bool blocks_are_short(const SchedConfig& config, const Supply& supply,
                      std::span<const RunningView> running, std::span<const WaitingView> waiting) {
  uint64_t need = 0;
  for (const RunningView& v : running) {
    const uint32_t whole = blocks_for(config, v.n_tokens + 1);
    need += whole > v.n_blocks ? whole - v.n_blocks : 0;
  }
  for (const WaitingView& v : waiting) need += blocks_for(config, v.n_tokens + 1);
  return need > supply.n_blocks || (!waiting.empty() && supply.n_slots == 0);
}

void order_waiting(const SchedConfig& config, std::vector<WaitingView>& waiting, size_t n) {
  const auto rank = [&](const WaitingView& v) {
    return static_cast<double>(v.priority) +
           (config.ageing_s > 0 ? std::floor(v.waited_s / config.ageing_s) : 0.0);
  };
  const auto before = [&](const WaitingView& a, const WaitingView& b) {
    return std::tuple(-rank(a), a.tenant_served, a.arrival) <
           std::tuple(-rank(b), b.tenant_served, b.arrival);
  };
  n = std::min(n, waiting.size());
  std::partial_sort(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(n),
                    waiting.end(), before);
}

}  // namespace hadal::sched
