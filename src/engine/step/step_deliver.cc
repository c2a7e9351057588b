// Tokens to their readers, and how a request ends.
#include <algorithm>

#include "base/core/check.h"
#include "engine/step/step_loop.h"

namespace hadal::step {
namespace {

using types::FinishReason;
constexpr auto kRetryFullSink = std::chrono::milliseconds(5);

double milliseconds(core::TimePoint from, core::TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

bool StepLoop::deliver() {
  if (with_news_.empty()) return false;
  const core::TimePoint now = clock_.now();
  bool any = false;
  const std::vector<Sequence*> news = std::exchange(with_news_, {});
  for (Sequence* s : news) {
    if (s->paused && s->retry_at > now) {
      with_news_.push_back(s);
      continue;
    }
    any = true;
    deliver(*s);
    if (!s->undelivered.empty()) {
      with_news_.push_back(s);
      continue;
    }
    s->has_news = false;
    if (s->finish == FinishReason::kNone) continue;
    tell_done(*s);
    // Whoever is told and has given everything back is forgotten.
    if (!s->has_place) sequences_.erase(static_cast<uint64_t>(s->key));
  }
  return any;
}

void StepLoop::deliver(Sequence& s) {
  if (s.undelivered.empty()) return;
  size_t n_taken = 0;
  const types::SinkAnswer answer = s.sink->on_tokens(s.undelivered, n_taken);
  HADAL_CHECK(n_taken <= s.undelivered.size(), "a sink took more than it was given");
  s.n_taken += static_cast<uint32_t>(n_taken);
  s.paused = false;
  switch (answer) {
    case types::SinkAnswer::kContinue:
      s.undelivered.clear();
      break;
    case types::SinkAnswer::kStop:
      s.undelivered.clear();
      s.finish = FinishReason::kNone;  // the stop came before whatever ended it later
      s.end_token.reset();
      finish(s, FinishReason::kStop);
      break;
    case types::SinkAnswer::kFull:
      s.undelivered.erase(s.undelivered.begin(),
                          s.undelivered.begin() + static_cast<std::ptrdiff_t>(n_taken));
      s.paused = !s.undelivered.empty();
      s.retry_at = clock_.now() + kRetryFullSink;
      break;
  }
}

// The one way to end. The reader is told when it has taken what it is owed.
void StepLoop::finish(Sequence& s, FinishReason reason) {
  if (s.finish != FinishReason::kNone || s.told) return;
  s.finish = reason;
  if (s.phase == Phase::kRunning) ended_.push_back(&s);
  if (s.phase == Phase::kWaiting) std::erase(waiting_, &s);
  s.phase = Phase::kEnded;
  add_news(s);
}

void StepLoop::add_news(Sequence& s) {
  if (std::exchange(s.has_news, true)) return;
  with_news_.push_back(&s);
}

void StepLoop::tell_done(Sequence& s) {
  if (s.told) return;
  s.told = true;
  const core::TimePoint now = clock_.now();
  if (!s.was_admitted) s.admitted = now;
  const core::TimePoint first = s.n_generated > 0 ? s.first_token : now;
  s.timings.queue_ms = milliseconds(s.arrived, s.admitted);
  s.timings.prefill_ms = milliseconds(s.admitted, first);
  s.timings.decode_ms = milliseconds(first, s.n_generated > 0 ? s.last_token : now);

  metrics_.finished[static_cast<size_t>(s.finish)]->add();
  metrics_.end_to_end.observe(milliseconds(s.arrived, now) / 1e3);
  metrics_.queue_time.observe(s.timings.queue_ms / 1e3);
  metrics_.prefill_time.observe(s.timings.prefill_ms / 1e3);
  metrics_.decode_time.observe(s.timings.decode_ms / 1e3);
  metrics_.inference_time.observe(milliseconds(s.admitted, now) / 1e3);
  metrics_.prompt_length.observe(s.n_prompt);
  metrics_.generation_length.observe(s.n_taken);
  metrics_.max_tokens.observe(s.request.max_tokens);
  if (s.n_taken > 1)
    metrics_.time_per_output_token.observe(s.timings.decode_ms / 1e3 / (s.n_taken - 1));

  Tenant& tenant = tenants_[s.tenant];
  HADAL_CHECK(tenant.n_active > 0, "tenants");
  --tenant.n_active;
  by_request_.erase(static_cast<uint64_t>(s.request.id));

  types::Completion completion;
  completion.reason = s.finish;
  completion.error = s.error;
  completion.end_token = s.end_token;
  completion.n_prompt_tokens = s.n_prompt;
  completion.n_generated_tokens = s.n_taken;
  completion.timings = s.timings;
  s.sink->on_done(completion);
  s.sink.reset();
}

}  // namespace hadal::step
