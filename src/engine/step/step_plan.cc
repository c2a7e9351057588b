// The plan of the next step, from the counts that the running one will have reached.
#include <algorithm>

#include "engine/step/resume.h"
#include "engine/step/step_loop.h"

namespace hadal::step {
namespace {

double seconds(core::TimePoint from, core::TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

// Tokens that the sequence will have, or 0 if it will have ended by length.
uint32_t tokens_after(const Sequence& s) {
  if (!s.flying) return s.n_tokens();
  const uint32_t generated = s.n_generated + s.flying_tokens;
  return generated >= s.request.max_tokens ? 0 : s.n_tokens() + s.flying_tokens;
}

bool expired(const Sequence& s, core::TimePoint now) {
  return s.request.deadline && *s.request.deadline <= now;
}

}  // namespace

uint32_t StepLoop::hit_blocks(const Sequence& s) const {
  if (!s.uses_cache()) return 0;
  // The last row has to run: it gives the first token.
  const uint32_t most = (s.n_tokens() - 1) / block_tokens_;
  return std::min(prefixes_.match(s.chain).n_resident, most);
}

void StepLoop::fill_running_views(bool with_exclusive) {
  const core::TimePoint now = clock_.now();
  running_views_.clear();
  for (const Sequence* s : running_) {
    if (s->phase != Phase::kRunning) continue;
    const uint32_t n_tokens = tokens_after(*s);
    sched::RunningView view;
    view.seq = s->key;
    view.priority = s->request.priority;
    view.arrival = static_cast<uint64_t>(s->key);
    view.last_step = s->last_step;
    view.n_blocks = static_cast<uint32_t>(s->blocks.size());
    view.n_computed = s->n_computed + s->flying_rows;
    view.n_tokens = n_tokens;
    view.decoding = n_tokens <= view.n_computed + s->per_step;
    view.expired = expired(*s, now);
    view.runnable = n_tokens > 0 && !s->paused && s->due <= now;
    if (s->flying && s->flying_tokens > 0 && s->request.script && s->request.script->pace_ms > 0)
      view.runnable = false;  // its due time is known when its tokens are there
    if (runner_.traits().n_snapshots > 0 && !view.decoding)
      view.cut_at = n_tokens / block_tokens_ * block_tokens_;
    if (with_exclusive) {
      view.n_exclusive = static_cast<uint32_t>(
          std::count_if(s->blocks.begin(), s->blocks.end(),
                        [&](const kv::BlockRef& ref) { return pool_.owners(ref.id()) == 1; }));
    }
    running_views_.push_back(view);
  }
}

void StepLoop::fill_waiting_views(size_t n) {
  const core::TimePoint now = clock_.now();
  waiting_views_.clear();
  for (const Sequence* s : waiting_) {
    sched::WaitingView view;
    view.seq = s->key;
    view.priority = s->request.priority;
    view.waited_s = seconds(s->arrived, now);
    view.tenant_served = tenants_[s->tenant].served;
    view.arrival = static_cast<uint64_t>(s->key);
    view.n_tokens = s->n_tokens();
    view.expired = expired(*s, now);
    waiting_views_.push_back(view);
  }
  const auto live = std::stable_partition(waiting_views_.begin(), waiting_views_.end(),
                                          [](const auto& view) { return view.expired; });
  const auto n_expired = static_cast<size_t>(live - waiting_views_.begin());
  std::vector<sched::WaitingView> rest(live, waiting_views_.end());
  sched::order_waiting(config_.sched, rest, n);
  rest.resize(std::min(rest.size(), n));
  waiting_views_.resize(n_expired);
  for (sched::WaitingView& view : rest) {
    const Sequence& s = *find(view.seq);
    view.n_hit_blocks = hit_blocks(s);
    const uint32_t hit = view.n_hit_blocks * block_tokens_;
    for (uint32_t b = 0; b < view.n_hit_blocks; ++b) {
      if (pool_.owners(prefixes_.block_of(prefixes_.find(s.chain[b]))) == 0) ++view.n_hit_cached;
    }
    const uint32_t depth = s.n_prompt - 1;
    const auto kept = snapshots_.longest(s.chain, view.n_hit_blocks, depth);
    view.start = plan_resume(runner_.traits().windows, hit, depth,
                             kept ? std::optional(kept->n_blocks * block_tokens_) : std::nullopt,
                             block_tokens_)
                     .start;
    if (runner_.traits().n_snapshots > 0)
      view.cut_at = view.n_tokens / block_tokens_ * block_tokens_;
    waiting_views_.push_back(view);
  }
}

sched::StepPlan StepLoop::plan() {
  fill_running_views(false);
  // Sequences that end meanwhile give back slots and blocks; the plan does not count on them unless
  // nothing else can come of it.
  const sched::Supply supply{pool_.n_available(), static_cast<uint32_t>(free_slots_.size())};
  waiting_views_.clear();
  if (!waiting_.empty()) fill_waiting_views(supply.n_slots + 2u);
  if (sched::blocks_are_short(config_.sched, supply, running_views_, waiting_views_))
    fill_running_views(true);
  return sched::plan_step(config_.sched, supply, running_views_, waiting_views_);
}

}  // namespace hadal::step
