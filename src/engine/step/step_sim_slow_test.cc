#include <chrono>

#include <gtest/gtest.h>

#include "engine/step/step_sim.h"

namespace hadal::step {
namespace {

TEST(StepSimulation, StaysWholeForAMillionSteps) {
  StepSimulation simulation(2);
  const auto begin = std::chrono::steady_clock::now();
  simulation.run(1'000'000);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.1f s, %llu requests, %llu preemptions\n", took.count(),
              static_cast<unsigned long long>(simulation.n_requests()),
              static_cast<unsigned long long>(simulation.n_preemptions()));
  EXPECT_GT(simulation.n_preemptions(), 100u);
}

}  // namespace
}  // namespace hadal::step
