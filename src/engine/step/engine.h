#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/core/clock.h"
#include "base/core/result.h"
#include "base/metrics/metrics.h"
#include "base/types/engine_port.h"
#include "engine/step/engine_config.h"
#include "engine/step/step_runner.h"

namespace hadal::sched {
class PlanRecorder;
}

namespace hadal::step {

class StepLoop;
struct EngineMetrics;
struct Sequence;

// The engine: a step loop with a thread, an inbox and an end. See README.md.
class Engine final : public types::EnginePort, public types::EngineControl {
 public:
  // `runner`, `clock` and `registry` must outlive the engine; `runner` is used by its thread alone.
  // `recorder` (optional) gets every plan.
  Engine(const EngineConfig& config, StepRunner& runner, const core::Clock& clock,
         metrics::Registry& registry, sched::PlanRecorder* recorder = nullptr);
  // Cancels what still runs.
  ~Engine() override;

  core::Status submit(types::Request request, std::shared_ptr<types::TokenSink> sink) override;
  void cancel(types::RequestId id) override;
  void resume(types::RequestId id) override;
  types::EngineLimits limits() const override;

  types::EngineStatus status() const override;
  uint32_t drain(std::chrono::milliseconds grace) override;
  // From another thread: a drain() that waits cuts what runs now.
  void end_drain();
  void flush_prefix_cache() override;
  void cancel_all() override;

 private:
  // A news for the thread, left under the lock; wakes it if it sleeps.
  template <typename Leave>
  void tell(Leave leave);
  // Is it likely that a request comes within a nap? Then the thread naps once before it sleeps:
  // its submitters need not wake it, and it finds several of them at once.
  bool arrivals_are_dense() const;

  struct Inbox {
    std::vector<std::unique_ptr<Sequence>> arrivals;
    std::vector<types::RequestId> cancels, resumes;
    bool flush = false, cancel_all = false;
  };
  void run();
  // Waits until there is something to do: with nothing done in the last iteration, for news or what
  // is due next. False: it is time to stop.
  bool wait_for_work(bool worked);
  bool has_news() const;  // mutex_ held
  void take_news();
  void publish();  // counts for other threads

  const EngineConfig config_;
  StepRunner& runner_;
  const core::Clock& clock_;
  std::unique_ptr<EngineMetrics> metrics_;
  std::unique_ptr<StepLoop> loop_;  // its thread's only
  const types::EngineLimits limits_;

  std::atomic<bool> draining_{false};
  std::atomic<uint32_t> n_inside_{0}, n_in_inbox_{0};
  std::atomic<uint32_t> n_running_{0}, n_waiting_{0}, n_paused_{0};
  std::atomic<uint32_t> n_free_blocks_{0}, n_cached_blocks_{0};
  std::atomic<uint64_t> n_foreign_prefixes_{0};

  // The thread's only.
  Inbox news_;  // taken out of inbox_; they change places, so that both keep their storage
  bool may_nap_ = false;  // something was done since the last pause
  core::TimePoint last_arrival_;
  double mean_gap_us_ = 1e6;  // between arrivals, lately

  mutable std::mutex mutex_;  // guards what follows
  bool asleep_ = false;       // waits for wake_, and nobody has woken it yet
  bool stop_ = false;
  bool drain_ends_ = false;
  std::condition_variable wake_;
  std::condition_variable idle_;  // nobody inside
  Inbox inbox_;
  std::thread thread_;
};

}  // namespace hadal::step
