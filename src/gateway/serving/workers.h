#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hadal::serving {

// A few threads for work that would hold up a connection's thread: reading and tokenising large
// bodies. The queue is bounded by the server's limit on bodies in flight. The destructor drops what
// has not begun.
class Workers {
 public:
  explicit Workers(uint32_t n_threads);
  ~Workers();
  void run(std::function<void()> task);

 private:
  std::mutex mutex_;  // guards tasks_
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::jthread> threads_;
};

}  // namespace hadal::serving
