#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/sched/plan.h"

namespace hadal::sched {

// Gets every plan of a running engine, in order. Thread: the engine's.
class PlanRecorder {
 public:
  virtual ~PlanRecorder() = default;
  virtual void on_plan(uint64_t step, const StepPlan& plan) = 0;
};

}  // namespace hadal::sched
