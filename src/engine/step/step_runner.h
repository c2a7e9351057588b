#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "base/types/request.h"

namespace hadal::step {

// How far the windows of a sequence reach, for resuming in the middle of it. All 0: the runner
// keeps no windows, and any block boundary will do.
struct WindowShape {
  uint32_t n_layers = 0;
  uint32_t window = 0;
  uint32_t split = 0;    // layers above it run on a prompt's tail only
  bool bounded = false;  // replay one window instead of all rows that an exact one needs
};

struct RunnerTraits {
  uint32_t n_slots = 0;      // sequences at a time
  uint32_t n_snapshots = 0;  // states that can be kept
  uint32_t max_context = 0;
  uint32_t n_vocab = 0;
  uint32_t max_rows = 0;  // of a step; 0: any
  // launch() returns when the step is done, so that nothing can be done beside it.
  bool runs_in_launch = false;
  WindowShape windows;
  std::string fingerprint;  // of everything that changes cached bits
};

enum class Begin : uint8_t {
  kEmpty,     // at position 0
  kSeed,      // at `position`, with windows that begin there
  kSnapshot,  // at `position`, as it was saved
};

// How a slot starts.
struct SlotStart {
  Begin kind = Begin::kEmpty;
  uint32_t slot = 0;
  uint32_t position = 0;
  uint32_t snapshot = 0;
  std::span<const types::TokenId> tokens_before;  // all tokens before `position`
  const types::Request* request = nullptr;        // whose slot it is; lives through the call
};

// Rows of one sequence in a step. What it points to lives until collect.
struct RunChunk {
  const types::Request* request = nullptr;
  uint32_t slot = 0;
  uint32_t position = 0;
  std::span<const types::TokenId> tokens;  // the rows
  std::span<const uint32_t> blocks;        // of the whole sequence
  bool samples = false;                    // the last row gives new tokens
  uint32_t n_prompt = 0;  // the rest of the sequence before the next token is output
  std::span<const types::TokenId> history;  // all tokens up to and with the last row
  uint32_t n_generated = 0;                 // tokens of output so far
  uint32_t depth_from = 0;                  // compute/model/README.md, "Depth"
  uint32_t window_floor = 0;
  uint32_t write_from = 0;
};

// What a chunk that samples gave.
struct RunResult {
  std::vector<types::TokenEvent> tokens;
  bool ended = false;  // the output ends here, before max_tokens
  types::FinishReason reason = types::FinishReason::kStop;  // with `ended`
  std::string error;                                        // not empty: this row failed
};

// What stands behind a step: the model, or the script in its place. One step at a time, by the
// engine's thread; traits, tokens_per_step and accept may be called from any.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual const RunnerTraits& traits() const = 0;
  // Tokens that a sampling chunk of this request gives, unless the output ends before.
  virtual uint32_t tokens_per_step(const types::Request& request) const = 0;
  // Can this request run here at all?
  virtual core::Status accept(const types::Request& request) const = 0;

  virtual void begin(const SlotStart& start) = 0;
  virtual void end(uint32_t slot) = 0;
  virtual void save(uint32_t slot, uint32_t snapshot) = 0;
  // Starts a step and returns (but see runs_in_launch). `chunks` lives until collect.
  virtual void launch(std::span<const RunChunk> chunks) = 0;
  // Waits for it. `results`: one per chunk, empty for those that do not sample. An error: all rows
  // of the step failed.
  virtual core::Status collect(std::vector<RunResult>& results) = 0;
};

}  // namespace hadal::step
