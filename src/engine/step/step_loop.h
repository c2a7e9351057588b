#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/core/clock.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/miss.h"
#include "engine/kv/prefix_cache.h"
#include "engine/kv/snapshots.h"
#include "engine/sched/plan.h"
#include "engine/sched/planner.h"
#include "engine/step/engine_config.h"
#include "engine/step/engine_metrics.h"
#include "engine/step/sequence.h"
#include "engine/step/step_runner.h"

namespace hadal::step {

// The loop of README.md, one iteration at a time. Not thread-safe.
class StepLoop {
 public:
  StepLoop(const EngineConfig& config, StepRunner& runner, const core::Clock& clock,
           EngineMetrics& metrics, sched::PlanRecorder* recorder);
  ~StepLoop();

  // Checks what never changes and makes a sequence of a request. Thread-safe: reads constants only.
  core::Result<std::unique_ptr<Sequence>> make_sequence(
      types::Request request, std::shared_ptr<types::TokenSink> sink) const;

  void add(std::unique_ptr<Sequence> sequence);
  void cancel(types::RequestId id, types::FinishReason reason = types::FinishReason::kCancelled);
  void resume(types::RequestId id);
  void cancel_all();
  void flush_prefix_cache();

  // One iteration; false if there was nothing to do.
  bool step();
  // Plays a recorded plan instead of making one: same requests, same arrivals, same plans.
  bool step(const sched::StepPlan& plan);
  // When step() may have something to do next without news from outside; nullopt: not before.
  std::optional<core::TimePoint> next_due() const;

  uint32_t n_running() const { return static_cast<uint32_t>(running_.size()); }
  uint32_t n_waiting() const { return static_cast<uint32_t>(waiting_.size()); }
  uint32_t n_paused() const;
  size_t n_inside() const { return sequences_.size(); }
  const kv::BlockPool& pool() const { return pool_; }
  uint64_t n_foreign_prefixes() const { return n_foreign_prefixes_; }  // types::EngineStatus
  uint64_t n_steps() const { return n_steps_; }
  uint32_t max_request_tokens() const;
  void check_integrity() const;

 private:
  struct Tenant {
    double served = 0;
    uint32_t n_active = 0;
  };

  bool iterate(const sched::StepPlan* recorded);
  // deliver.cc
  bool deliver();
  void deliver(Sequence& s);
  void tell_done(Sequence& s);
  void finish(Sequence& s, types::FinishReason reason);
  void add_news(Sequence& s);
  // plan
  sched::StepPlan plan();
  void fill_running_views(bool with_exclusive);
  void fill_waiting_views(size_t n);
  uint32_t hit_blocks(const Sequence& s) const;
  // collect
  void collect();
  void take_result(Sequence& s, RunResult& result, core::TimePoint now);
  void seal_blocks(Sequence& s);
  void keep_state(Sequence& s);
  // commit
  void commit(const sched::StepPlan& plan);
  void retire();
  double seconds_now() const;  // since the loop was made
  void give_back(Sequence& s);
  void preempt(Sequence& s);
  void admit(Sequence& s);
  void add_chunk(const sched::Chunk& chunk);
  Sequence* find(sched::SeqKey key);
  void launch();

  const EngineConfig config_;
  const uint32_t block_tokens_;
  StepRunner& runner_;
  const core::Clock& clock_;
  const core::TimePoint began_ = clock_.now();
  EngineMetrics& metrics_;
  sched::PlanRecorder* recorder_;

  kv::PrefixCache prefixes_;
  kv::BlockPool pool_;
  kv::Snapshots snapshots_;
  kv::MissMemory misses_;
  uint64_t n_foreign_prefixes_ = 0;

  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences_;  // by key; owns
  std::unordered_map<uint64_t, Sequence*> by_request_;
  std::unordered_map<std::string, size_t> tenant_index_;
  std::vector<Tenant> tenants_;
  std::vector<Sequence*> running_;  // by arrival
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> with_news_;  // undelivered tokens, or an end to tell
  std::vector<Sequence*> ended_;      // blocks and slot to give back
  std::vector<uint32_t> free_slots_;
  uint64_t next_key_ = 1;
  uint64_t n_steps_ = 0;
  core::TimePoint launched_at_, collected_at_;

  // Reused every step.
  std::vector<sched::RunningView> running_views_;
  std::vector<sched::WaitingView> waiting_views_;
  std::vector<RunChunk> chunks_;
  std::vector<Sequence*> chunk_seqs_;
  std::vector<RunResult> results_;
};

}  // namespace hadal::step
