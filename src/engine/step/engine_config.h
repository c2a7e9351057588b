#pragma once

#include <cstdint>
#include <optional>

#include "engine/sched/plan.h"

namespace hadal::step {

struct EngineConfig {
  sched::SchedConfig sched;     // block_tokens, step_tokens, prefill_chunk, max_running
  uint32_t n_blocks = 0;        // of the device pool
  uint32_t max_waiting = 1024;  // beyond it submit answers kOverloaded
  uint32_t max_context = 0;     // 0: the runner's
  bool prefix_cache = true;
  std::optional<uint32_t> n_ghosts;  // evicted blocks remembered by name; nullopt: kv's choice
  uint32_t snapshot_tokens = 4096;   // a prompt's state is kept at least this often
  uint32_t check_every = 0;          // check_integrity after so many steps; 0: never
};

}  // namespace hadal::step
