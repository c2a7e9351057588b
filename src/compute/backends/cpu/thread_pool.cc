#include "compute/backends/cpu/thread_pool.h"

#include <chrono>
#include <cstdlib>
#include <new>

#include <pthread.h>
#include <sched.h>

#include "base/core/check.h"

namespace hadal::cpu {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// CPUs of the process's affinity mask, ascending.
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);  // refused in some sandboxes: then unpinned
}

// Spins on `word` until it differs from `old` or the time is over, then sleeps on it.
uint32_t wait_change(const std::atomic<uint32_t>& word, uint32_t old, int spin_us) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us);
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now != old) return now;
      relax();
    }
    if (std::chrono::steady_clock::now() >= until) break;
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

// One block for all lanes; each lane's pages are touched first by its own thread.
struct ThreadPool::Scratch {
  std::byte* data = nullptr;
  explicit Scratch(int64_t bytes)
      : data(static_cast<std::byte*>(
            ::operator new(static_cast<size_t>(bytes), std::align_val_t{4096}))) {}
  ~Scratch() { ::operator delete(data, std::align_val_t{4096}); }
};

Range share(int64_t n, const Lane& lane, int64_t grain) {
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t begin = grains * lane.index / lane.count * grain;
  const int64_t end = grains * (lane.index + 1) / lane.count * grain;
  return {begin < n ? begin : n, end < n ? end : n};
}

ThreadPool::ThreadPool(const Options& options)
    : n_threads_(options.n_threads),
      scratch_bytes_((options.scratch_bytes + 4095) / 4096 * 4096),
      spin_us_(options.spin_us),
      scratch_(std::make_unique<Scratch>(scratch_bytes_ * options.n_threads)) {
  HADAL_CHECK(n_threads_ >= 1);
  if (options.pin && n_threads_ > 1) cpus_ = allowed_cpus();
  // More threads than CPUs: pinning would only stack them.
  if (cpus_.size() < static_cast<size_t>(n_threads_)) cpus_.clear();
  threads_.reserve(static_cast<size_t>(n_threads_ - 1));
  for (int i = 1; i < n_threads_; ++i) {
    threads_.emplace_back([this, i] { worker(i); });
    if (!cpus_.empty()) pin_to(threads_.back().native_handle(), cpus_[static_cast<size_t>(i)]);
  }
}

void ThreadPool::pin_caller() {
  if (!cpus_.empty()) pin_to(pthread_self(), cpus_[0]);
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

Lane ThreadPool::lane(int index) {
  return Lane{index, n_threads_, scratch_->data + index * scratch_bytes_, this};
}

void ThreadPool::run_erased(Work work, const void* argument) {
  if (n_threads_ > 1) {
    work_ = work;
    argument_ = argument;
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  work(argument, lane(0));
  barrier(0);
}

void ThreadPool::worker(int index) {
  const Lane self = lane(index);
  uint32_t seen = 0;
  for (;;) {
    seen = wait_change(generation_, seen, spin_us_);
    if (stop_.load(std::memory_order_relaxed)) return;
    work_(argument_, self);
    barrier(index);
  }
}

// Sense by counting: the last arrival opens the next phase.
void ThreadPool::barrier(int /*lane*/) {
  if (n_threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(n_threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  while (phase_.load(std::memory_order_acquire) == phase) wait_change(phase_, phase, spin_us_);
}

}  // namespace hadal::cpu
