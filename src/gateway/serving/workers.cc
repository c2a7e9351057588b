#include "gateway/serving/workers.h"

namespace hadal::serving {

Workers::Workers(uint32_t n_threads) {
  for (uint32_t i = 0; i < n_threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) {
      while (true) {
        std::function<void()> task;
        {
          std::unique_lock lock(mutex_);
          if (!changed_.wait(lock, stop, [this] { return !tasks_.empty(); })) return;
          task = std::move(tasks_.front());
          tasks_.pop_front();
        }
        task();
      }
    });
  }
}

Workers::~Workers() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

void Workers::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

}  // namespace hadal::serving
