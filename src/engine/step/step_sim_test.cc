#include "engine/step/step_sim.h"

#include <gtest/gtest.h>

namespace hadal::step {
namespace {

TEST(StepSimulation, StaysWholeForThousandsOfSteps) {
  StepSimulation simulation(1);
  simulation.run(10'000);
  EXPECT_GT(simulation.n_preemptions(), 0u);
  EXPECT_GT(simulation.n_hits(), 0u);
}

}  // namespace
}  // namespace hadal::step
