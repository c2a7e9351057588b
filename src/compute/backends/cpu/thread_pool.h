#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace hadal::cpu {

class ThreadPool;

// One thread's place inside ThreadPool::run.
struct Lane {
  int index = 0;
  int count = 1;
  std::byte* scratch = nullptr;  // its own, ThreadPool::scratch_bytes() of it, 64-byte aligned
  ThreadPool* pool = nullptr;
  // Returns when every lane has come here as often. All lanes must pass the same barriers.
  inline void barrier() const;
};

// Half-open.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// [0, n) in equal parts, rounded to multiples of `grain`; the parts of all lanes cover it once.
Range share(int64_t n, const Lane& lane, int64_t grain = 1);

// Fork-join over pinned threads. The caller of run() is lane 0 and works too, so n_threads = 1
// starts no thread. Workers spin for `spin_us` after their work, then sleep until the next run().
//
// Thread safety: one caller at a time; run() does not nest.
class ThreadPool {
 public:
  struct Options {
    int n_threads = 1;
    int64_t scratch_bytes = 2 << 20;  // per lane; at least linear_scratch_bytes()
    bool pin = true;                  // lane i > 0 to the i-th CPU of the process's affinity mask
    int spin_us = 100;
  };
  explicit ThreadPool(const Options& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // Pins the calling thread to lane 0's CPU, if lanes are pinned. For the one thread that calls
  // run(); threads that it starts afterwards inherit the mask, so start them before.
  void pin_caller();

  // Calls f(const Lane&) once on every lane, at the same time, and returns when all are done.
  template <typename F>
  void run(const F& f) {
    run_erased([](const void* work, const Lane& lane) { (*static_cast<const F*>(work))(lane); },
               &f);
  }

 private:
  friend struct Lane;
  using Work = void (*)(const void*, const Lane&);
  void run_erased(Work work, const void* argument);
  void barrier(int lane);
  void worker(int lane);
  Lane lane(int index);

  const int n_threads_;
  const int64_t scratch_bytes_;
  const int spin_us_;
  std::vector<int> cpus_;  // of the lanes; empty: not pinned
  // Written by lane 0 before it raises generation_, read by workers after they see it.
  Work work_ = nullptr;
  const void* argument_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
  std::vector<std::jthread> threads_;  // last: joined before anything that they use goes
};

inline void Lane::barrier() const {
  if (count > 1) pool->barrier(index);
}

}  // namespace hadal::cpu
