#include "engine/step/step_loop.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/core/check.h"

namespace hadal::step {
namespace {

using types::FinishReason;

core::Error invalid(std::string message, std::string param) {
  return {core::Code::kInvalidRequest, std::move(message), std::move(param)};
}

}  // namespace

StepLoop::StepLoop(const EngineConfig& config, StepRunner& runner, const core::Clock& clock,
                   EngineMetrics& metrics, sched::PlanRecorder* recorder)
    : config_(config),
      block_tokens_(config.sched.block_tokens),
      runner_(runner),
      clock_(clock),
      metrics_(metrics),
      recorder_(recorder),
      prefixes_({config.n_blocks, kv::Policy::kTurnHazard, config.n_ghosts}),
      pool_(config.n_blocks, prefixes_),
      snapshots_(runner.traits().n_snapshots),
      misses_(config.n_blocks, config.sched.block_tokens) {
  HADAL_CHECK(config.n_blocks > 0 && block_tokens_ > 0, "an engine without blocks");
  HADAL_CHECK(config.sched.step_tokens > 0 && config.sched.prefill_chunk > 0, "empty steps");
  const uint32_t n_slots = std::min(runner.traits().n_slots, config.sched.max_running);
  HADAL_CHECK(n_slots > 0, "an engine that may run nothing");
  for (uint32_t i = n_slots; i-- > 0;) free_slots_.push_back(i);
}

StepLoop::~StepLoop() {
  cancel_all();
  while (!sequences_.empty()) step();
}

uint32_t StepLoop::max_request_tokens() const {
  uint64_t most = runner_.traits().max_context;
  if (config_.max_context > 0) most = std::min<uint64_t>(most, config_.max_context);
  // The last token that is generated needs no place.
  return static_cast<uint32_t>(
      std::min<uint64_t>(most, uint64_t{config_.n_blocks} * block_tokens_));
}

core::Result<std::unique_ptr<Sequence>> StepLoop::make_sequence(
    types::Request request, std::shared_ptr<types::TokenSink> sink) const {
  if (request.prompt.empty()) return invalid("the prompt has no tokens", "prompt");
  if (request.max_tokens == 0) return invalid("max_tokens must be at least 1", "max_tokens");
  const auto n_vocab = static_cast<types::TokenId>(runner_.traits().n_vocab);
  for (const types::TokenId id : request.prompt) {
    if (id < 0 || id >= n_vocab)
      return invalid(fmt::format("token id {} is not in the vocabulary of {}", id, n_vocab),
                     "prompt");
  }
  if (!request.image_rows.empty() && request.image_rows.size() != request.prompt.size())
    return invalid("image flags do not match the prompt", "prompt");
  const uint64_t total = request.prompt.size() + uint64_t{request.max_tokens};
  if (total > max_request_tokens())
    return core::Error{
        core::Code::kContextTooLong,
        fmt::format("{} prompt tokens and max_tokens {} are {} together; this server holds at most "
                    "{} of one request",
                    request.prompt.size(), request.max_tokens, total, max_request_tokens()),
        "max_tokens"};
  HADAL_TRY_VOID(runner_.accept(request));

  auto s = std::make_unique<Sequence>();
  s->n_prompt = static_cast<uint32_t>(request.prompt.size());
  s->tokens = std::move(request.prompt);
  request.prompt.clear();
  request.use_prefix_cache = request.use_prefix_cache && config_.prefix_cache;
  s->request = std::move(request);
  s->sink = std::move(sink);
  s->arrived = clock_.now();
  s->per_step = runner_.tokens_per_step(s->request);
  if (s->uses_cache()) {
    s->salt = {runner_.traits().fingerprint, s->request.tenant, s->request.image_salt};
    kv::extend_chain(s->salt, block_tokens_, s->tokens, s->request.image_rows, s->chain);
  }
  return s;
}

void StepLoop::add(std::unique_ptr<Sequence> sequence) {
  Sequence& s = *sequence;
  s.key = sched::SeqKey{next_key_++};
  const auto [found, fresh] = tenant_index_.try_emplace(s.request.tenant, tenants_.size());
  if (fresh) tenants_.emplace_back();
  s.tenant = found->second;
  Tenant& tenant = tenants_[s.tenant];
  if (tenant.n_active++ == 0) {
    // Who was away has no claim on what others had meanwhile.
    double least = -1;
    for (const Tenant& other : tenants_) {
      if (&other != &tenant && other.n_active > 0 && (least < 0 || other.served < least))
        least = other.served;
    }
    tenant.served = std::max(tenant.served, least);
  }
  waiting_.push_back(&s);
  by_request_[static_cast<uint64_t>(s.request.id)] = &s;
  sequences_.emplace(static_cast<uint64_t>(s.key), std::move(sequence));
}

void StepLoop::cancel(types::RequestId id, FinishReason reason) {
  const auto found = by_request_.find(static_cast<uint64_t>(id));
  if (found == by_request_.end()) return;
  Sequence& s = *found->second;
  s.undelivered.clear();
  s.finish = FinishReason::kNone;  // an end that nobody was told of gives way
  finish(s, reason);
}

void StepLoop::resume(types::RequestId id) {
  const auto found = by_request_.find(static_cast<uint64_t>(id));
  if (found != by_request_.end()) found->second->retry_at = core::TimePoint{};
}

void StepLoop::cancel_all() {
  std::vector<types::RequestId> ids;
  for (const auto& [id, s] : by_request_) ids.push_back(types::RequestId{id});
  for (const types::RequestId id : ids) cancel(id);
}

void StepLoop::flush_prefix_cache() {
  pool_.drop_cached();
  snapshots_.clear();
}

bool StepLoop::step() {
  return iterate(nullptr);
}

bool StepLoop::step(const sched::StepPlan& plan) {
  return iterate(&plan);
}

bool StepLoop::iterate(const sched::StepPlan* recorded) {
  bool worked = deliver();
  const sched::StepPlan next = recorded != nullptr ? *recorded : plan();
  if (!chunks_.empty()) {
    collect();
    // Else readers would get these tokens only after the whole step that is launched next.
    if (runner_.traits().runs_in_launch) deliver();
    worked = true;
  }
  worked = !ended_.empty() || !next.empty() || worked;
  commit(next);
  launch();
  if (recorder_ != nullptr && !next.empty()) recorder_->on_plan(n_steps_, next);
  if (config_.check_every > 0 && n_steps_ % config_.check_every == 0) check_integrity();
  return worked;
}

uint32_t StepLoop::n_paused() const {
  return static_cast<uint32_t>(std::count_if(with_news_.begin(), with_news_.end(),
                                             [](const Sequence* s) { return s->paused; }));
}

std::optional<core::TimePoint> StepLoop::next_due() const {
  std::optional<core::TimePoint> due;
  const auto consider = [&](core::TimePoint at) {
    if (!due || at < *due) due = at;
  };
  if (!chunks_.empty() || !ended_.empty()) return core::TimePoint{};
  for (const Sequence* s : with_news_) consider(s->paused ? s->retry_at : core::TimePoint{});
  for (const Sequence* s : running_) {
    if (!s->paused) consider(s->due);
    if (s->request.deadline) consider(*s->request.deadline);
  }
  for (const Sequence* s : waiting_) {
    if (s->request.deadline) consider(*s->request.deadline);
  }
  if (!waiting_.empty()) consider(clock_.now() + std::chrono::milliseconds(20));  // ageing
  return due;
}

void StepLoop::check_integrity() const {
  pool_.check_integrity();
  uint32_t n_slots_used = 0;
  for (const auto& [key, s] : sequences_) {
    if (!s->has_place) {
      HADAL_CHECK(s->blocks.empty(), fmt::format("sequence {} holds blocks", key));
      continue;
    }
    ++n_slots_used;
    HADAL_CHECK(s->blocks.size() == s->block_ids.size(), fmt::format("sequence {}: table", key));
    HADAL_CHECK(
        s->n_computed <= s->blocks.size() * block_tokens_ || s->phase == Phase::kEnded,
        fmt::format("sequence {}: {} rows in {} blocks", key, s->n_computed, s->blocks.size()));
    for (size_t i = 0; i < s->blocks.size(); ++i) {
      HADAL_CHECK(s->block_ids[i] == static_cast<uint32_t>(s->blocks[i].id()),
                  fmt::format("sequence {}: block {}", key, i));
    }
  }
  HADAL_CHECK(waiting_.size() + running_.size() <= sequences_.size(), "sequences");
  HADAL_CHECK(n_slots_used + free_slots_.size() ==
                  std::min(runner_.traits().n_slots, config_.sched.max_running),
              fmt::format("slots: {} used, {} free", n_slots_used, free_slots_.size()));
}

}  // namespace hadal::step
