// The end of a running step: tokens appended, blocks sealed, states kept, ends found.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/check.h"
#include "engine/step/step_loop.h"

namespace hadal::step {
namespace {

using types::FinishReason;

}  // namespace

void StepLoop::collect() {
  const core::Status status = runner_.collect(results_);
  const core::TimePoint now = clock_.now();
  collected_at_ = now;
  if (!status) metrics_.failed_steps.add();
  for (size_t i = 0; i < chunks_.size(); ++i) {
    Sequence& s = *chunk_seqs_[i];
    const auto n_rows = static_cast<uint32_t>(chunks_[i].tokens.size());
    s.flying = false;
    s.flying_rows = s.flying_tokens = 0;
    if (s.phase != Phase::kRunning) continue;  // ended while it flew: nobody wants this
    if (!status || !results_[i].error.empty()) {
      s.error = status ? results_[i].error : status.error().message;
      finish(s, FinishReason::kError);
      continue;
    }
    s.n_computed += n_rows;
    tenants_[s.tenant].served += n_rows;
    if (chunks_[i].samples) take_result(s, results_[i], now);
    seal_blocks(s);
    keep_state(s);
  }
  chunks_.clear();
  chunk_seqs_.clear();
}

void StepLoop::take_result(Sequence& s, RunResult& result, core::TimePoint now) {
  const uint32_t room = s.request.max_tokens - s.n_generated;
  bool at_end_token = false;
  uint32_t n_new = 0;
  for (types::TokenEvent& event : result.tokens) {
    if (n_new == room) break;
    const types::TokenId id = event.token;
    if (!s.request.ignore_eos && s.n_generated + n_new >= s.request.min_tokens &&
        std::find(s.request.end_tokens.begin(), s.request.end_tokens.end(), id) !=
            s.request.end_tokens.end() &&
        !s.request.script) {
      s.end_token = id;
      at_end_token = true;
      break;
    }
    s.tokens.push_back(id);
    event.at = now;
    s.undelivered.push_back(std::move(event));
    ++n_new;
  }
  if (n_new > 0) {
    if (s.n_generated == 0) {
      s.first_token = now;
      metrics_.time_to_first_token.observe(std::chrono::duration<double>(now - s.arrived).count());
    } else {
      metrics_.inter_token.observe(
          std::chrono::duration<double>(now - s.last_token).count() / n_new, n_new);
    }
    s.last_token = now;
    s.n_generated += n_new;
    metrics_.generation_tokens.add(n_new);
    add_news(s);
  }
  if (at_end_token) {
    finish(s, FinishReason::kStop);
  } else if (s.n_generated >= s.request.max_tokens) {
    finish(s, FinishReason::kLength);
  } else if (result.ended) {
    finish(s, result.reason);
  } else {
    HADAL_CHECK(n_new == std::min(room, s.per_step), "a runner gave fewer tokens than it said");
    if (s.request.script && s.request.script->pace_ms > 0) {
      ++s.n_emissions;
      s.due = s.first_token +
              std::chrono::milliseconds(uint64_t{s.n_emissions} * s.request.script->pace_ms);
    }
  }
}

void StepLoop::seal_blocks(Sequence& s) {
  if (!s.uses_cache() || (s.n_sealed + 1) * block_tokens_ > s.n_computed) return;
  kv::extend_chain(s.salt, block_tokens_, std::span(s.tokens).first(s.n_computed),
                   s.request.image_rows, s.chain);
  while ((s.n_sealed + 1) * block_tokens_ <= s.n_computed) {
    const uint32_t b = s.n_sealed;
    const uint32_t before = s.block_ids[b];
    s.last_node = pool_.seal(s.blocks[b], s.chain[b], s.last_node);
    s.block_ids[b] = static_cast<uint32_t>(s.blocks[b].id());
    if (s.block_ids[b] == before) {
      misses_.on_seal(s.blocks[b].id(), b, s.chain[b], s.tokens, s.salt);
      metrics_.stored_blocks.add();
    }
    ++s.n_sealed;
  }
}

// A state is kept at the end of a prompt's last full block, every snapshot_tokens, and at the last
// block boundary that a sequence has passed; the latter moves on with it.
void StepLoop::keep_state(Sequence& s) {
  const uint32_t at = s.n_computed;
  if (snapshots_.n_places() == 0 || !s.uses_cache() || at == 0 || at % block_tokens_ != 0 ||
      at < s.write_from || s.phase != Phase::kRunning)
    return;
  const uint32_t last = s.last_snapshot_at;
  if (at + block_tokens_ <= s.n_tokens() && at - last < config_.snapshot_tokens) return;
  const bool moves_on = last > s.n_prompt && last % config_.snapshot_tokens != 0;
  if (moves_on) snapshots_.drop(s.chain[last / block_tokens_ - 1]);
  s.last_snapshot_at = at;
  const kv::BlockHash& name = s.chain[at / block_tokens_ - 1];
  const uint32_t depth = s.n_prompt - 1;
  if (snapshots_.has(name, depth)) return;
  runner_.save(s.slot, *snapshots_.put(name, depth));
  metrics_.snapshots.add();
}

}  // namespace hadal::step
