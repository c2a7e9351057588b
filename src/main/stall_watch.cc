#include "main/stall_watch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace hadal::main {

std::string StallWatch::look(core::TimePoint now, const Look& at) {
  // Paused rows wait for their readers, and with them whoever waits for their places.
  const bool has_work = at.n_running > at.n_paused || (at.n_running == 0 && at.n_waiting > 0);
  if (!looked_ || !has_work || at.n_steps != n_steps_) {
    looked_ = true;
    n_steps_ = at.n_steps;
    moved_ = now;
    idle_ = {};
    const auto told = std::exchange(told_, {});
    if (told.count() == 0) return {};
    return fmt::format("the engine goes on at step {}", at.n_steps);
  }
  idle_ = std::chrono::duration_cast<std::chrono::milliseconds>(now - moved_);
  if (patience_.count() == 0 || idle_ < std::max(patience_, 2 * told_)) return {};
  told_ = idle_;
  return fmt::format(
      "no step since {:.0f} s: step {} does not end ({} requests run, {} of them paused, {} wait)",
      static_cast<double>(idle_.count()) / 1000, at.n_steps, at.n_running, at.n_paused,
      at.n_waiting);
}

}  // namespace hadal::main
