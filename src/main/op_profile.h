#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compute/ops/backend.h"

namespace hadal::main {

// What the calls of one op took together, and what they had to do at least.
struct OpTime {
  std::string name;  // linears by shape: "linear 1792x5120"
  int64_t n_calls = 0;
  double seconds = 0;
  double bytes = 0;  // of the weights that they read, in the checkpoint's form
  double macs = 0;   // multiply-adds: products, attention, scores of the index search
};

// Times of ops, filled by a backend that profiled() made. One thread at a time.
class OpProfile {
 public:
  void clear() { ops_.clear(); }
  void add(const std::string& name, double seconds, double bytes, double macs);
  std::vector<OpTime> by_time() const;  // the longest first

 private:
  std::vector<OpTime> ops_;
};

// `backend`, each of whose ops notes its time in `profile`, which must outlive it.
// REQUIRES: ops of `backend` are done when they return, and read host memory.
std::unique_ptr<ops::Backend> profiled(std::unique_ptr<ops::Backend> backend, OpProfile& profile);

}  // namespace hadal::main
