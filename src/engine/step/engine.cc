#include "engine/step/engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/step/engine_metrics.h"
#include "engine/step/sequence.h"
#include "engine/step/step_loop.h"

namespace hadal::step {
namespace {

// Scripts with a pace are due at thousands of different moments a second: they are run in groups.
constexpr auto kTick = std::chrono::milliseconds(2);

// Long enough that several requests of a busy server come meanwhile, short beside any answer. To
// wake a sleeping thread costs some 10 us of its waker on a virtual machine.
constexpr auto kNap = std::chrono::microseconds(100);

core::TimePoint next_tick(core::TimePoint at) {
  const auto since = at.time_since_epoch();
  return core::TimePoint((since + kTick - core::TimePoint::duration(1)) / kTick * kTick);
}

}  // namespace

Engine::Engine(const EngineConfig& config, StepRunner& runner, const core::Clock& clock,
               metrics::Registry& registry, sched::PlanRecorder* recorder)
    : config_(config),
      runner_(runner),
      clock_(clock),
      metrics_(std::make_unique<EngineMetrics>(registry)),
      loop_(std::make_unique<StepLoop>(config, runner, clock, *metrics_, recorder)),
      limits_{config.max_context > 0 ? std::min(config.max_context, runner.traits().max_context)
                                     : runner.traits().max_context,
              loop_->max_request_tokens()} {
  publish();
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  draining_ = true;
  tell([&] { stop_ = true; });
  thread_.join();
  std::swap(news_, inbox_);
  take_news();  // who came last is told, too
}

core::Status Engine::submit(types::Request request, std::shared_ptr<types::TokenSink> sink) {
  if (draining_)
    return core::Error{core::Code::kUnavailable, "the server is shutting down; try another one"};
  // Places that are free count: a burst into an idle engine is not a queue.
  const uint32_t running = n_running_;
  const uint32_t places =
      config_.max_waiting +
      (running < config_.sched.max_running ? config_.sched.max_running - running : 0);
  if (n_waiting_ + n_in_inbox_ >= places)
    return core::Error{
        core::Code::kOverloaded,
        fmt::format("{} requests are waiting already; try again later", n_waiting_ + n_in_inbox_)};
  HADAL_TRY(std::unique_ptr<Sequence> sequence,
            loop_->make_sequence(std::move(request), std::move(sink)));
  tell([&] {
    inbox_.arrivals.push_back(std::move(sequence));
    ++n_in_inbox_;
    ++n_inside_;
  });
  return {};
}

template <typename Leave>
void Engine::tell(Leave leave) {
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    leave();
    wake = std::exchange(asleep_, false);
  }
  if (wake) wake_.notify_one();
}

void Engine::cancel(types::RequestId id) {
  tell([&] { inbox_.cancels.push_back(id); });
}

void Engine::resume(types::RequestId id) {
  tell([&] { inbox_.resumes.push_back(id); });
}

void Engine::cancel_all() {
  tell([&] { inbox_.cancel_all = true; });
}

void Engine::flush_prefix_cache() {
  tell([&] { inbox_.flush = true; });
}

types::EngineLimits Engine::limits() const {
  return limits_;
}

types::EngineStatus Engine::status() const {
  types::EngineStatus status;
  status.n_running = n_running_;
  status.n_waiting = n_waiting_ + n_in_inbox_;
  status.n_paused = n_paused_;
  status.n_blocks = config_.n_blocks;
  status.n_free_blocks = n_free_blocks_;
  status.n_cached_blocks = n_cached_blocks_;
  status.n_foreign_prefixes = n_foreign_prefixes_;
  status.draining = draining_;
  return status;
}

uint32_t Engine::drain(std::chrono::milliseconds grace) {
  draining_ = true;
  std::unique_lock lock(mutex_);
  idle_.wait_for(lock, grace, [&] { return n_inside_ == 0 || drain_ends_; });
  if (n_inside_ == 0) return 0;
  const uint32_t n_cut = n_inside_;
  inbox_.cancel_all = true;
  wake_.notify_one();
  idle_.wait_for(lock, std::chrono::seconds(10), [&] { return n_inside_ == 0; });
  return n_cut;
}

void Engine::end_drain() {
  const std::lock_guard lock(mutex_);
  drain_ends_ = true;
  idle_.notify_all();
}

void Engine::take_news() {
  for (std::unique_ptr<Sequence>& sequence : news_.arrivals) {
    const double gap_us =
        std::chrono::duration<double, std::micro>(sequence->arrived - last_arrival_).count();
    last_arrival_ = sequence->arrived;
    mean_gap_us_ += (std::min(gap_us, 1e6) - mean_gap_us_) / 8;
    loop_->add(std::move(sequence));
  }
  for (const types::RequestId id : news_.cancels) loop_->cancel(id);
  for (const types::RequestId id : news_.resumes) loop_->resume(id);
  if (news_.cancel_all) loop_->cancel_all();
  if (news_.flush) loop_->flush_prefix_cache();
  news_.arrivals.clear();
  news_.cancels.clear();
  news_.resumes.clear();
  news_.cancel_all = news_.flush = false;
}

void Engine::publish() {
  const kv::BlockPool& pool = loop_->pool();
  n_running_ = loop_->n_running();
  n_waiting_ = loop_->n_waiting();
  n_paused_ = loop_->n_paused();
  n_free_blocks_ = pool.n_free();
  n_cached_blocks_ = pool.n_cached();
  n_foreign_prefixes_ = loop_->n_foreign_prefixes();
  metrics_->running.set(loop_->n_running());
  metrics_->waiting.set(loop_->n_waiting());
  metrics_->paused.set(loop_->n_paused());
  metrics_->blocks_free.set(pool.n_free());
  metrics_->blocks_cached.set(pool.n_cached());
  metrics_->blocks_active.set(pool.n_held());
  metrics_->cache_usage.set(static_cast<double>(pool.n_held()) / pool.n_blocks());
}

bool Engine::arrivals_are_dense() const {
  return mean_gap_us_ < std::chrono::duration<double, std::micro>(kNap).count() / 2;
}

bool Engine::has_news() const {
  return !inbox_.arrivals.empty() || !inbox_.cancels.empty() || !inbox_.resumes.empty() ||
         inbox_.flush || inbox_.cancel_all || stop_;
}

bool Engine::wait_for_work(bool worked) {
  std::unique_lock lock(mutex_);
  const auto inside = static_cast<uint32_t>(loop_->n_inside() + inbox_.arrivals.size());
  if (n_inside_.exchange(inside) != inside && inside == 0) idle_.notify_all();
  if (worked) may_nap_ = true;
  if (!worked && !has_news()) {
    const std::optional<core::TimePoint> due = loop_->next_due();
    if (!due && may_nap_ && arrivals_are_dense()) {
      may_nap_ = false;
      lock.unlock();
      std::this_thread::sleep_for(kNap);
      lock.lock();
    } else if (!due || *due > clock_.now()) {
      asleep_ = true;
      if (due) {
        wake_.wait_until(lock, next_tick(*due), [&] { return has_news(); });
      } else {
        wake_.wait(lock, [&] { return has_news(); });
      }
      asleep_ = false;
    }
  }
  if (stop_) return false;
  std::swap(news_, inbox_);
  n_in_inbox_ = 0;
  return true;
}

void Engine::run() {
  bool worked = false;
  while (wait_for_work(worked)) {
    take_news();
    worked = loop_->step();
    publish();
  }
}

}  // namespace hadal::step
