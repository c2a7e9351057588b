#include "engine/step/script_runner.h"

#include <algorithm>

namespace hadal::step {

ScriptRunner::ScriptRunner(uint32_t n_slots, uint32_t n_vocab) {
  traits_.n_slots = n_slots;
  traits_.n_vocab = n_vocab;
  traits_.max_context = 1'048'576;
  traits_.fingerprint = "script";
}

uint32_t ScriptRunner::tokens_per_step(const types::Request& request) const {
  return request.script ? std::max(1u, request.script->step) : 1;
}

core::Status ScriptRunner::accept(const types::Request& request) const {
  if (request.script) return {};
  return core::Error{core::Code::kInvalidRequest,
                     "the script backend has no model: give the output as \"hadal\": {\"script\": "
                     "{\"text\": ...}}, or start the server with --script FILE",
                     "hadal.script"};
}

core::Status ScriptRunner::collect(std::vector<RunResult>& results) {
  results.resize(chunks_.size());
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const RunChunk& chunk = chunks_[i];
    RunResult& result = results[i];
    result.tokens.clear();
    result.ended = false;
    result.error.clear();
    if (!chunk.samples) continue;
    const types::ScriptPlay& play = *chunk.request->script;
    const size_t from = std::min<size_t>(chunk.n_generated, play.tokens.size());
    const size_t to = std::min(from + tokens_per_step(*chunk.request), play.tokens.size());
    for (size_t k = from; k < to; ++k) result.tokens.emplace_back().token = play.tokens[k];
    result.ended = to == play.tokens.size();
    result.reason = play.ends_with_stop ? types::FinishReason::kStop : types::FinishReason::kLength;
  }
  return {};
}

}  // namespace hadal::step
