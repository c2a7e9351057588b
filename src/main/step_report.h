#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "main/op_profile.h"

namespace hadal::main {

// A workload of `hadal bench step` as it was measured.
struct StepFigures {
  std::string name;
  double tokens = 0, bytes = 0, macs = 0;  // of one step
  std::vector<double> seconds;             // of each step
  // What the device did right before and after each step (mean of both), one value a step: bytes a
  // second read, flop a second. Empty: only the rates of the whole run are known.
  std::vector<double> reads = {}, peaks = {};
  std::string logits;       // a digest of the last ones, to compare runs by
  std::vector<OpTime> ops;  // of all steps; empty without --profile
};

// Rates of the whole run.
struct StepRates {
  double read = 0;   // bytes a second
  double flops = 0;  // operations a second, two a multiply-add
};

// Prints a line, and one for each op. The share is the median over steps of limit / time, each
// step beside its own rates.
void report_step(const StepFigures& figures, const StepRates& rates, const std::string& device,
                 bool json);
void report_memory(uint64_t peak, uint64_t weights, uint64_t plan, bool json);

}  // namespace hadal::main
