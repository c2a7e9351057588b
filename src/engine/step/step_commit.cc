// The one place where blocks and slots change hands. No step flies here.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/check.h"
#include "engine/step/resume.h"
#include "engine/step/step_loop.h"

namespace hadal::step {
namespace {

using types::FinishReason;

}  // namespace

Sequence* StepLoop::find(sched::SeqKey key) {
  const auto found = sequences_.find(static_cast<uint64_t>(key));
  return found == sequences_.end() ? nullptr : found->second.get();
}

void StepLoop::commit(const sched::StepPlan& plan) {
  for (const sched::SeqKey key : plan.expire) {
    Sequence* s = find(key);
    if (s == nullptr || s->phase == Phase::kEnded) continue;
    s->error = "the request's deadline passed";
    finish(*s, FinishReason::kDeadline);
  }
  retire();
  for (const sched::SeqKey key : plan.preempt) {
    Sequence* s = find(key);
    if (s != nullptr && s->phase == Phase::kRunning) preempt(*s);
  }
  for (const sched::SeqKey key : plan.admit) {
    Sequence* s = find(key);
    if (s != nullptr && s->phase == Phase::kWaiting) admit(*s);
  }
  for (const sched::Chunk& chunk : plan.chunks) add_chunk(chunk);
}

double StepLoop::seconds_now() const {
  return std::chrono::duration<double>(clock_.now() - began_).count();
}

void StepLoop::retire() {
  if (ended_.empty()) return;
  for (Sequence* s : ended_) give_back(*s);
  std::erase_if(running_, [](const Sequence* s) { return s->phase == Phase::kEnded; });
  for (Sequence* s : std::exchange(ended_, {})) {
    if (s->told) sequences_.erase(static_cast<uint64_t>(s->key));
  }
}

void StepLoop::give_back(Sequence& s) {
  if (s.uses_cache() && s.n_sealed > 0) {
    prefixes_.touch(std::span(s.chain).first(s.n_sealed),
                    {.now_s = seconds_now(),
                     .n_blocks = (s.n_tokens() + block_tokens_ - 1) / block_tokens_,
                     .last_is_partial = false,
                     .n_output = s.n_generated,
                     .arrival = s.arrival});
  }
  // Deepest first, so that free blocks are taken up again in the order they lie in memory.
  while (!s.blocks.empty()) s.blocks.pop_back();
  s.block_ids.clear();
  s.n_sealed = 0;
  s.last_node = kv::kNoNode;
  runner_.end(s.slot);
  free_slots_.push_back(s.slot);
  s.has_place = false;
}

void StepLoop::preempt(Sequence& s) {
  give_back(s);
  s.phase = Phase::kWaiting;
  s.n_computed = 0;
  s.last_snapshot_at = 0;
  ++s.timings.n_preemptions;
  metrics_.preemptions.add();
  std::erase(running_, &s);
  waiting_.push_back(&s);
}

void StepLoop::admit(Sequence& s) {
  HADAL_CHECK(!free_slots_.empty(), "a plan admits more than there are slots");
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  s.has_place = true;
  const uint32_t n_hit = hit_blocks(s);
  for (uint32_t b = 0; b < n_hit; ++b) {
    s.last_node = prefixes_.find(s.chain[b]);
    s.blocks.push_back(pool_.share(s.last_node));
    s.block_ids.push_back(static_cast<uint32_t>(s.blocks.back().id()));
  }
  s.n_sealed = n_hit;

  const uint32_t hit = n_hit * block_tokens_;
  const uint32_t depth = s.n_prompt - 1;
  const auto kept = snapshots_.longest(s.chain, n_hit, depth);
  const ResumePoint point = plan_resume(
      runner_.traits().windows, hit, depth,
      kept ? std::optional(kept->n_blocks * block_tokens_) : std::nullopt, block_tokens_);
  SlotStart start{point.kind, s.slot, point.start, 0, std::span(s.tokens).first(point.start),
                  &s.request};
  if (point.kind == Begin::kSnapshot) start.snapshot = kept->place;
  s.n_computed = point.start;
  s.window_floor = point.window_floor;
  s.write_from = point.write_from;
  s.last_snapshot_at = point.start;
  runner_.begin(start);

  metrics_.replayed_tokens.add(hit - point.start);
  if (!s.was_admitted) {
    s.was_admitted = true;
    s.admitted = clock_.now();
    const kv::PrefixCache::Match match = prefixes_.match(s.chain);
    if (s.uses_cache()) s.arrival = prefixes_.arrive(s.chain, seconds_now());
    s.timings.cached_tokens_device = hit;
    s.timings.replayed_tokens = hit - point.start;
    if (s.uses_cache()) {
      const auto reason = misses_.explain(s.tokens, s.chain, match, s.salt, prefixes_);
      s.timings.miss = reason.miss;
      s.timings.first_different_token = reason.first_different_token;
      if (reason.foreign) ++n_foreign_prefixes_;
      metrics_.prefix_queries.add(s.n_prompt);
      metrics_.prefix_hits.add(hit);
    } else {
      s.timings.miss = types::CacheMiss::kDisabled;
    }
    metrics_.cache_misses[static_cast<size_t>(s.timings.miss)]->add();
    metrics_.prompt_tokens.add(s.n_prompt);
    s.sink->on_start(hit);
  }
  s.phase = Phase::kRunning;
  std::erase(waiting_, &s);
  const auto by_age = [](const Sequence* a, const Sequence* b) { return a->key < b->key; };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &s, by_age), &s);
}

void StepLoop::add_chunk(const sched::Chunk& chunk) {
  Sequence* s = find(chunk.seq);
  if (s == nullptr || s->phase != Phase::kRunning) return;  // ended meanwhile
  HADAL_CHECK(chunk.begin + chunk.n_rows <= s->n_tokens(),
              fmt::format("a plan runs rows {}+{} of sequence {}, which has {} tokens", chunk.begin,
                          chunk.n_rows, static_cast<uint64_t>(chunk.seq), s->n_tokens()));
  // Admitted at another place than planned (its hit grew, or a kept state went): never more rows.
  const uint32_t begin = s->n_computed;
  const uint32_t end =
      std::min(std::max(chunk.begin + chunk.n_rows, begin + 1), begin + chunk.n_rows);
  const uint32_t need = (end + block_tokens_ - 1) / block_tokens_;
  const auto has = static_cast<uint32_t>(s->blocks.size());
  if (need > has) {
    const uint64_t evicted = prefixes_.n_evicted();
    // A plan counts the blocks of who leaves as free; a newcomer of the same plan may share them.
    // Then these rows wait for the next plan, which sees the true counts.
    if (!pool_.allocate(need - has, s->blocks)) return;
    metrics_.evicted_blocks.add(prefixes_.n_evicted() - evicted);
    for (uint32_t b = has; b < need; ++b)
      s->block_ids.push_back(static_cast<uint32_t>(s->blocks[b].id()));
  }
  RunChunk& run = chunks_.emplace_back();
  run.request = &s->request;
  run.slot = s->slot;
  run.position = begin;
  run.tokens = std::span(s->tokens).subspan(begin, end - begin);
  run.blocks = s->block_ids;
  run.samples = end == s->n_tokens();
  run.n_prompt = s->n_prompt;
  run.history = std::span(s->tokens).first(end);
  run.n_generated = s->n_generated;
  run.depth_from = s->n_prompt - 1;
  run.window_floor = s->window_floor;
  run.write_from = s->write_from;
  chunk_seqs_.push_back(s);
  s->flying = true;
  s->flying_rows = end - begin;
  s->flying_tokens =
      run.samples ? std::min(s->per_step, s->request.max_tokens - s->n_generated) : 0;
  s->last_step = n_steps_;
}

void StepLoop::launch() {
  if (chunks_.empty()) {
    collected_at_ = launched_at_;  // idle: not a part of any step
    return;
  }
  const core::TimePoint now = clock_.now();
  if (n_steps_ > 0 && collected_at_ > launched_at_) {
    metrics_.step_seconds.observe(std::chrono::duration<double>(now - launched_at_).count());
    metrics_.step_outside_seconds.observe(
        std::chrono::duration<double>(now - collected_at_).count());
  }
  launched_at_ = now;
  ++n_steps_;
  metrics_.steps.add();
  uint64_t n_rows = 0;
  for (const RunChunk& chunk : chunks_) n_rows += chunk.tokens.size();
  metrics_.iteration_tokens.observe(static_cast<double>(n_rows));
  runner_.launch(chunks_);
}

}  // namespace hadal::step
