#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/types/engine_port.h"
#include "base/types/request.h"
#include "engine/kv/block_hash.h"
#include "engine/kv/block_pool.h"
#include "engine/sched/plan.h"

namespace hadal::step {

enum class Phase : uint8_t {
  kWaiting,  // no blocks, no slot
  kRunning,
  kEnded,  // nothing more is planned; blocks and slot go back when no step flies
};

// One token timeline and everything the loop knows of it. Lives behind a pointer until its last
// token is delivered and its blocks are back.
struct Sequence {
  // Set at submit, constant.
  types::Request request;  // its prompt has moved to `tokens`
  std::shared_ptr<types::TokenSink> sink;
  core::TimePoint arrived;
  uint32_t n_prompt = 0;
  kv::ChainSalt salt;
  // Set when the loop takes it in, constant.
  sched::SeqKey key{};
  size_t tenant = 0;
  uint32_t per_step = 1;  // tokens of a sampling chunk

  Phase phase = Phase::kWaiting;
  std::vector<types::TokenId> tokens;  // prompt, then generated
  uint32_t n_computed = 0;
  uint32_t n_generated = 0;
  uint64_t last_step = 0;

  // Of a running one.
  bool has_place = false;  // holds a slot; still true for one that ended while its step flies
  uint32_t slot = 0;
  std::vector<kv::BlockRef> blocks;
  std::vector<uint32_t> block_ids;            // the same, for the runner
  uint32_t window_floor = 0, write_from = 0;  // of this admission's replay
  uint32_t n_sealed = 0;                      // leading blocks that have names
  kv::NodeId last_node = kv::kNoNode;         // of block n_sealed - 1
  uint32_t last_snapshot_at = 0;

  kv::Arrival arrival;
  std::vector<kv::BlockHash> chain;  // names of full blocks; empty without prefix cache

  // While a step flies: what it will add.
  bool flying = false;
  uint32_t flying_rows = 0;
  uint32_t flying_tokens = 0;

  // To its reader.
  std::vector<types::TokenEvent> undelivered;
  uint32_t n_taken = 0;
  bool paused = false;
  core::TimePoint retry_at;
  bool has_news = false;  // in the loop's list of those to talk to
  bool told = false;      // on_done was called

  // How it ends.
  types::FinishReason finish = types::FinishReason::kNone;
  std::string error;
  std::optional<types::TokenId> end_token;

  // Time.
  core::TimePoint admitted, first_token, last_token;
  core::TimePoint due;  // no rows before (scripts with a pace)
  uint32_t n_emissions = 0;
  types::Timings timings;
  bool was_admitted = false;

  uint32_t n_tokens() const { return static_cast<uint32_t>(tokens.size()); }
  // Does it still run what it knows, rather than what its last step gave?
  bool catching_up() const { return n_tokens() - n_computed > per_step; }
  bool uses_cache() const { return request.use_prefix_cache; }
};

}  // namespace hadal::step
