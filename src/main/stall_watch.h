#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/core/clock.h"

namespace hadal::main {

// Notices an engine that has work and makes no step. Looked at from time to time by one thread; a
// stall is told when it is older than the patience, again whenever it has doubled, and at its end.
class StallWatch {
 public:
  struct Look {
    uint64_t n_steps = 0;  // so far
    uint32_t n_running = 0, n_paused = 0, n_waiting = 0;
  };
  // A patience of 0 never tells.
  explicit StallWatch(std::chrono::milliseconds patience) : patience_(patience) {}

  // A line for the log, or "".
  std::string look(core::TimePoint now, const Look& at);
  // Since the last step, at the last look; 0 while there is no work to do.
  std::chrono::milliseconds idle() const { return idle_; }

 private:
  const std::chrono::milliseconds patience_;
  std::chrono::milliseconds idle_{0}, told_{0};
  bool looked_ = false;
  uint64_t n_steps_ = 0;
  core::TimePoint moved_;
};

}  // namespace hadal::main
