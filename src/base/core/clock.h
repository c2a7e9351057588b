#pragma once

#include <chrono>

namespace hadal::core {

using TimePoint = std::chrono::steady_clock::time_point;

// Time as a dependency, so that a test can be its own clock.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace hadal::core
