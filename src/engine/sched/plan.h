#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"

namespace hadal::sched {

// The engine's name of a sequence; any number, unique among those alive.
enum class SeqKey : uint64_t {};

// What the planner may know of a sequence that has blocks and a slot. All counts are as they will
// be when the step that is running now has ended.
struct RunningView {
  SeqKey seq{};
  int32_t priority = 0;      // higher first
  uint64_t arrival = 0;      // order of arrival, unique
  uint64_t last_step = 0;    // step in which it last had rows
  uint32_t n_tokens = 0;     // known: prompt and generated
  uint32_t n_computed = 0;   // rows that ran; below n_tokens
  uint32_t n_blocks = 0;     // held
  uint32_t n_exclusive = 0;  // of these, owned by nobody else: what its preemption sets free
  uint32_t cut_at = 0;       // no chunk may cross this position (0: none)
  bool decoding = false;     // runs what its last step gave; else it still runs what was known
  bool runnable = true;      // not paused by its reader, and due
  bool expired = false;      // its deadline is over
};

// A sequence that waits, with what the prefix cache has for it.
struct WaitingView {
  SeqKey seq{};
  int32_t priority = 0;
  double waited_s = 0;
  double tenant_served = 0;  // tokens that its tenant was given lately
  uint64_t arrival = 0;
  uint32_t n_tokens = 0;
  uint32_t n_hit_blocks = 0;  // it will share these
  uint32_t n_hit_cached = 0;  // of these, owned by nobody now
  uint32_t start = 0;         // first row to run; at most n_hit_blocks * block_tokens
  uint32_t cut_at = 0;
  bool expired = false;
};

struct SchedConfig {
  uint32_t block_tokens = 128;
  uint32_t step_tokens = 2048;    // rows of a step at most
  uint32_t prefill_chunk = 1024;  // rows of one sequence in a step at most
  uint32_t max_running = 64;
  // Waiting this long is worth one step of priority, so that nobody waits for ever.
  double ageing_s = 10.0;
  // A waiting request may take the place of a running one of lower priority (without ageing).
  bool preempt_for_priority = true;
};

// What there is to give.
struct Supply {
  uint32_t n_blocks = 0;  // not held by anybody, cached ones included
  uint32_t n_slots = 0;   // for sequences to admit
};

// Rows of one sequence: [begin, begin + n_rows).
struct Chunk {
  SeqKey seq{};
  uint32_t begin = 0;
  uint32_t n_rows = 0;
  uint32_t n_new_blocks = 0;  // to allocate before
  bool last = false;          // ends at the last known token: gives the next one
  bool operator==(const Chunk&) const = default;
};

// One step, as a plain value: it can be recorded, sent and replayed. Applied in this order.
struct StepPlan {
  std::vector<SeqKey> expire;   // end with kDeadline, running or waiting
  std::vector<SeqKey> preempt;  // give up blocks and slot, wait again
  std::vector<SeqKey> admit;    // share the blocks found, take a slot
  std::vector<Chunk> chunks;
  bool operator==(const StepPlan&) const = default;

  bool empty() const {
    return expire.empty() && preempt.empty() && admit.empty() && chunks.empty();
  }
  uint32_t n_rows() const;
};

// Decides one step. Pure: same inputs, same plan; no clock, no device, no I/O.
// Order of care: running decodes, then running prefills, then waiting requests, oldest first within
// equal rank. `waiting` is in the order of order_waiting and may be cut off after as many as could
// be admitted.
StepPlan plan_step(const SchedConfig& config, const Supply& supply,
                   std::span<const RunningView> running, std::span<const WaitingView> waiting);

// Does the pool run out in the coming step, so that n_exclusive will be looked at?
bool blocks_are_short(const SchedConfig& config, const Supply& supply,
                      std::span<const RunningView> running, std::span<const WaitingView> waiting);

// Sorts by rank: priority with ageing, then the tenant that had least, then arrival. Only the first
// `n` places are put in order.
void order_waiting(const SchedConfig& config, std::vector<WaitingView>& waiting, size_t n);

// A plan as one line of text and back: "expire 4; preempt 7; admit 9; run 1@130+1! 9@0+128".
std::string to_text(const StepPlan& plan);
core::Result<StepPlan> plan_from_text(std::string_view text);

}  // namespace hadal::sched
