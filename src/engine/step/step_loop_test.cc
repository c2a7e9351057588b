#include "engine/step/step_loop.h"

#include <numeric>

#include <gtest/gtest.h>

#include "engine/step/script_runner.h"
#include "engine/step/test_sink.h"

namespace hadal::step {
namespace {

using types::FinishReason;
using types::TokenId;

class StepLoopTest : public ::testing::Test {
 protected:
  static EngineConfig small() {
    EngineConfig config;
    config.sched.block_tokens = 4;
    config.sched.step_tokens = 32;
    config.sched.prefill_chunk = 16;
    config.sched.max_running = 8;
    config.n_blocks = 64;
    config.check_every = 1;
    return config;
  }
  void start(const EngineConfig& config) {
    loop_ = std::make_unique<StepLoop>(config, runner_, clock_, metrics_, nullptr);
  }
  static std::vector<TokenId> numbers(size_t n, TokenId from) {
    std::vector<TokenId> ids(n);
    std::iota(ids.begin(), ids.end(), from);
    return ids;
  }
  types::Request request(std::vector<TokenId> prompt, size_t n_output, uint32_t step = 1) {
    types::Request r;
    r.id = types::RequestId{++last_id_};
    r.prompt = std::move(prompt);
    r.max_tokens = 100;
    r.script.emplace();
    r.script->tokens = numbers(n_output, 500);
    r.script->step = step;
    return r;
  }
  std::shared_ptr<TestSink> submit(types::Request r, size_t stop_after = SIZE_MAX) {
    auto sink = std::make_shared<TestSink>(stop_after);
    auto sequence = loop_->make_sequence(std::move(r), sink);
    EXPECT_TRUE(sequence.has_value());
    if (sequence) loop_->add(std::move(*sequence));
    return sink;
  }
  void run_all() {
    for (int i = 0; i < 10000 && loop_->n_inside() > 0; ++i) {
      if (!loop_->step()) clock_.advance(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(loop_->n_inside(), 0u);
    EXPECT_EQ(loop_->pool().n_held(), 0u);
  }

  ScriptRunner runner_{8, 1000};
  ManualClock clock_;
  metrics::Registry registry_;
  EngineMetrics metrics_{registry_};
  std::unique_ptr<StepLoop> loop_;
  uint64_t last_id_ = 0;
};

// The script, as a runner that computes inside launch().
class BlockingScript final : public StepRunner {
 public:
  explicit BlockingScript(ScriptRunner& script) : script_(script), traits_(script.traits()) {
    traits_.runs_in_launch = true;
  }
  const RunnerTraits& traits() const override { return traits_; }
  uint32_t tokens_per_step(const types::Request& r) const override {
    return script_.tokens_per_step(r);
  }
  core::Status accept(const types::Request& r) const override { return script_.accept(r); }
  void begin(const SlotStart& start) override { script_.begin(start); }
  void end(uint32_t slot) override { script_.end(slot); }
  void save(uint32_t slot, uint32_t snapshot) override { script_.save(slot, snapshot); }
  void launch(std::span<const RunChunk> chunks) override {
    ++n_launched;
    script_.launch(chunks);
  }
  core::Status collect(std::vector<RunResult>& results) override {
    return script_.collect(results);
  }

  int n_launched = 0;

 private:
  ScriptRunner& script_;
  RunnerTraits traits_;
};

TEST_F(StepLoopTest, TokensDoNotWaitForTheNextStepWhereItRunsInsideLaunch) {
  BlockingScript blocking(runner_);
  loop_ = std::make_unique<StepLoop>(small(), blocking, clock_, metrics_, nullptr);
  auto r = request(numbers(10, 1), 100);
  r.max_tokens = 100;
  const auto sink = submit(std::move(r), 3);  // the reader stops after three
  // What the k-th step gave is with the reader while k steps (and no more) were launched before
  // the iteration that launches the next one.
  int launched_before = 0;
  while (loop_->n_inside() > 0) {
    loop_->step();
    EXPECT_EQ(sink->ids.size(), static_cast<size_t>(std::min(launched_before, 3)));
    launched_before = blocking.n_launched;
  }
  EXPECT_EQ(sink->ids, numbers(3, 500));
  EXPECT_EQ(sink->n_done, 1);
  EXPECT_EQ(blocking.n_launched, 3);  // no step for a reader who has stopped
}

TEST_F(StepLoopTest, AScriptIsPlayedWholeAndEndsWithStop) {
  start(small());
  const auto sink = submit(request(numbers(10, 1), 7, 3));
  run_all();
  EXPECT_EQ(sink->ids, numbers(7, 500));
  EXPECT_EQ(sink->n_done, 1);
  EXPECT_EQ(sink->done.reason, FinishReason::kStop);
  EXPECT_EQ(sink->done.n_prompt_tokens, 10u);
  EXPECT_EQ(sink->done.n_generated_tokens, 7u);
  EXPECT_EQ(sink->n_cached, 0u);
}

TEST_F(StepLoopTest, MaxTokensEndsWithLengthToTheToken) {
  start(small());
  types::Request r = request(numbers(5, 1), 50, 4);
  r.max_tokens = 10;
  const auto sink = submit(std::move(r));
  types::Request exact = request(numbers(5, 1), 6);
  exact.max_tokens = 6;
  const auto full = submit(std::move(exact));
  run_all();
  EXPECT_EQ(sink->ids, numbers(10, 500));
  EXPECT_EQ(sink->done.reason, FinishReason::kLength);
  EXPECT_EQ(full->done.reason, FinishReason::kLength);
}

TEST_F(StepLoopTest, AnEmptyScriptEndsWithoutATokenAndOneWithoutStopByLength) {
  start(small());
  const auto nothing = submit(request(numbers(5, 1), 0));
  types::Request r = request(numbers(5, 1), 3);
  r.script->ends_with_stop = false;
  const auto cut = submit(std::move(r));
  run_all();
  EXPECT_TRUE(nothing->ids.empty());
  EXPECT_EQ(nothing->done.reason, FinishReason::kStop);
  EXPECT_EQ(cut->ids.size(), 3u);
  EXPECT_EQ(cut->done.reason, FinishReason::kLength);
}

TEST_F(StepLoopTest, ASinkThatStopsGetsNothingMore) {
  start(small());
  const auto sink = submit(request(numbers(10, 1), 40, 3), 8);
  run_all();
  EXPECT_EQ(sink->ids, numbers(8, 500));
  EXPECT_EQ(sink->done.reason, FinishReason::kStop);
  EXPECT_EQ(sink->done.n_generated_tokens, 8u);
}

TEST_F(StepLoopTest, AFullSinkPausesItsOwnRowOnly) {
  start(small());
  const auto slow = submit(request(numbers(10, 1), 30));
  const auto fast = submit(request(numbers(10, 100), 30));
  slow->room = 5;
  for (int i = 0; i < 100; ++i) loop_->step();
  EXPECT_EQ(fast->ids.size(), 30u);
  EXPECT_EQ(fast->n_done, 1);
  EXPECT_EQ(slow->ids.size(), 5u);
  EXPECT_EQ(slow->n_done, 0);
  EXPECT_EQ(loop_->n_paused(), 1u);
  slow->room = SIZE_MAX;
  run_all();
  EXPECT_EQ(slow->ids, numbers(30, 500));
  EXPECT_EQ(slow->done.reason, FinishReason::kStop);
}

TEST_F(StepLoopTest, ACancelTakesEffectWithinOneStepAndGivesEverythingBack) {
  start(small());
  types::Request r = request(numbers(10, 1), 60);
  const types::RequestId id = r.id;
  const auto sink = submit(std::move(r));
  const auto other = submit(request(numbers(10, 100), 20));
  for (int i = 0; i < 10; ++i) loop_->step();
  EXPECT_GT(sink->ids.size(), 0u);
  const size_t before = sink->ids.size();
  loop_->cancel(id);
  loop_->step();
  EXPECT_EQ(sink->n_done, 1);
  EXPECT_EQ(sink->ids.size(), before);
  EXPECT_EQ(sink->done.reason, FinishReason::kCancelled);
  run_all();
  EXPECT_EQ(sink->n_done, 1);
  EXPECT_EQ(other->ids.size(), 20u);
}

TEST_F(StepLoopTest, TheSecondRequestFindsTheFirstOnesPrompt) {
  start(small());
  submit(request(numbers(23, 1), 6));
  run_all();
  const auto warm = submit(request(numbers(23, 1), 6));
  types::Request other = request(numbers(23, 1), 6);
  other.tenant = "else";
  const auto foreign = submit(std::move(other));
  std::vector<TokenId> prompt = numbers(23, 1);
  prompt[14] = 999;
  const auto diverged = submit(request(prompt, 6));
  types::Request off = request(numbers(23, 1), 6);
  off.use_prefix_cache = false;
  const auto disabled = submit(std::move(off));
  run_all();
  EXPECT_EQ(warm->done.timings.cached_tokens_device, 20u);
  EXPECT_EQ(warm->n_cached, 20u);
  EXPECT_EQ(warm->done.timings.miss, types::CacheMiss::kNone);
  EXPECT_EQ(foreign->done.timings.cached_tokens_device, 0u);
  EXPECT_EQ(foreign->done.timings.miss, types::CacheMiss::kCold);
  EXPECT_EQ(diverged->done.timings.cached_tokens_device, 12u);
  EXPECT_EQ(diverged->done.timings.miss, types::CacheMiss::kDiverged);
  EXPECT_EQ(diverged->done.timings.first_different_token, 14u);
  EXPECT_EQ(disabled->done.timings.miss, types::CacheMiss::kDisabled);
  EXPECT_EQ(disabled->done.timings.cached_tokens_device, 0u);
}

TEST_F(StepLoopTest, WhenBlocksRunOutTheYoungestWaitsAndNothingIsLost) {
  EngineConfig config = small();
  config.n_blocks = 12;
  start(config);
  std::vector<std::shared_ptr<TestSink>> sinks;
  for (int i = 0; i < 4; ++i) {
    types::Request r = request(numbers(8, 1 + 20 * i), 30);
    r.max_tokens = 30;
    sinks.push_back(submit(std::move(r)));
  }
  run_all();
  uint32_t n_preemptions = 0;
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->ids, numbers(30, 500));
    n_preemptions += sink->done.timings.n_preemptions;
  }
  EXPECT_GT(n_preemptions, 0u);
}

TEST_F(StepLoopTest, WhatCanNeverRunIsRefusedAtOnce) {
  EngineConfig config = small();
  config.n_blocks = 8;
  start(config);
  const auto sink = std::make_shared<TestSink>();
  types::Request r = request(numbers(20, 1), 5);
  r.max_tokens = 13;
  auto refused = loop_->make_sequence(r, sink);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, core::Code::kContextTooLong);
  EXPECT_EQ(refused.error().param, "max_tokens");
  r.max_tokens = 12;
  EXPECT_TRUE(loop_->make_sequence(r, sink).has_value());
  r.prompt[3] = 1000;
  EXPECT_EQ(loop_->make_sequence(r, sink).error().code, core::Code::kInvalidRequest);
  r.prompt.clear();
  EXPECT_FALSE(loop_->make_sequence(r, sink).has_value());
}

TEST_F(StepLoopTest, ADeadlineEndsWaitingAndRunningRequests) {
  EngineConfig config = small();
  config.sched.max_running = 1;
  start(config);
  types::Request a = request(numbers(8, 1), 90);
  a.script->pace_ms = 10;
  a.deadline = clock_.now() + std::chrono::milliseconds(55);
  types::Request b = request(numbers(8, 1), 5);
  b.deadline = clock_.now() + std::chrono::milliseconds(20);
  const auto running = submit(std::move(a));
  const auto waiting = submit(std::move(b));
  run_all();
  EXPECT_EQ(waiting->done.reason, FinishReason::kDeadline);
  EXPECT_EQ(running->done.reason, FinishReason::kDeadline);
  EXPECT_GE(running->ids.size(), 5u);
  EXPECT_LE(running->ids.size(), 7u);
}

TEST_F(StepLoopTest, PacedScriptsKeepTheirPace) {
  start(small());
  types::Request r = request(numbers(8, 1), 6, 2);
  r.script->pace_ms = 100;
  const auto sink = submit(std::move(r));
  loop_->step();
  loop_->step();
  loop_->step();
  EXPECT_EQ(sink->ids.size(), 2u);
  clock_.advance(std::chrono::milliseconds(99));
  for (int i = 0; i < 5; ++i) loop_->step();
  EXPECT_EQ(sink->ids.size(), 2u);
  clock_.advance(std::chrono::milliseconds(1));
  for (int i = 0; i < 5; ++i) loop_->step();
  EXPECT_EQ(sink->ids.size(), 4u);
  run_all();
  EXPECT_EQ(sink->ids.size(), 6u);
}

TEST_F(StepLoopTest, HigherPriorityTakesTheOnlyPlace) {
  EngineConfig config = small();
  config.sched.max_running = 1;
  start(config);
  const auto low = submit(request(numbers(8, 1), 50));
  for (int i = 0; i < 10; ++i) loop_->step();
  types::Request r = request(numbers(8, 100), 5);
  r.priority = 5;
  const auto high = submit(std::move(r));
  for (int i = 0; i < 12; ++i) loop_->step();
  EXPECT_EQ(high->n_done, 1);
  EXPECT_EQ(low->n_done, 0);
  run_all();
  EXPECT_EQ(low->ids, numbers(50, 500));
  EXPECT_EQ(low->done.timings.n_preemptions, 1u);
}

}  // namespace
}  // namespace hadal::step
