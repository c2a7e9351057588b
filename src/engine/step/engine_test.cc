#include "engine/step/engine.h"

#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "engine/step/script_runner.h"

namespace hadal::step {
namespace {

using namespace std::chrono_literals;

// A sink that a test thread can wait on.
class WaitableSink final : public types::TokenSink {
 public:
  types::SinkAnswer on_tokens(std::span<const types::TokenEvent> events, size_t& n_taken) override {
    const std::scoped_lock lock(mutex_);
    n_taken = events.size();
    n_tokens_ += events.size();
    changed_.notify_all();
    return types::SinkAnswer::kContinue;
  }
  void on_done(const types::Completion& completion) override {
    const std::scoped_lock lock(mutex_);
    done_ = completion;
    changed_.notify_all();
  }
  types::Completion wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 120s, [&] { return done_.has_value(); }));
    return done_.value_or(types::Completion{});
  }
  void wait_for_tokens(size_t n) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 120s, [&] { return n_tokens_ >= n; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t n_tokens_ = 0;
  std::optional<types::Completion> done_;
};

types::Request request(uint64_t id, size_t n_output, uint32_t pace_ms = 0) {
  types::Request r;
  r.id = types::RequestId{id};
  r.prompt.assign(20, 7);
  r.max_tokens = 1000;
  r.script.emplace();
  r.script->tokens.assign(n_output, 9);
  r.script->pace_ms = pace_ms;
  return r;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    config_.sched.block_tokens = 16;
    config_.sched.max_running = 64;
    config_.n_blocks = 4096;
    config_.max_waiting = 16;
  }
  EngineConfig config_;
  ScriptRunner runner_{64, 1000};
  core::SystemClock clock_;
  metrics::Registry registry_;
};

TEST_F(EngineTest, ManyThreadsSubmitAndAllAreServed) {
  config_.max_waiting = 10000;
  Engine engine(config_, runner_, clock_, registry_);
  std::vector<std::shared_ptr<WaitableSink>> sinks(800);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t; i < sinks.size(); i += 4) {
          sinks[i] = std::make_shared<WaitableSink>();
          EXPECT_TRUE(engine.submit(request(i + 1, 30), sinks[i]).has_value());
          if (i % 7 == 0) engine.cancel(types::RequestId{i + 1});
        }
      });
    }
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    const types::Completion done = sinks[i]->wait();
    if (i % 7 != 0) {
      EXPECT_EQ(done.n_generated_tokens, 30u);
    }
  }
  EXPECT_EQ(engine.drain(60s), 0u);
  EXPECT_EQ(engine.status().n_running, 0u);
}

TEST_F(EngineTest, SinksAreLetGoSoonAfterTheirEnd) {
  Engine engine(config_, runner_, clock_, registry_);
  const auto gone = [](const std::weak_ptr<WaitableSink>& sink) {
    for (int i = 0; i < 100'000 && !sink.expired(); ++i) std::this_thread::sleep_for(1ms);
    return sink.expired();
  };
  const auto run = [&](uint64_t id) {
    auto sink = std::make_shared<WaitableSink>();
    EXPECT_TRUE(engine.submit(request(id, 5), sink).has_value());
    sink->wait();
    return std::weak_ptr<WaitableSink>(sink);
  };
  EXPECT_TRUE(gone(run(1)));  // by the engine's thread, which has nothing else to do
  auto slow = std::make_shared<WaitableSink>();
  ASSERT_TRUE(engine.submit(request(2, 1000, 200), slow).has_value());
  EXPECT_TRUE(gone(run(3)));  // while another one goes on and nobody submits
  engine.cancel(types::RequestId{2});
  slow->wait();
  std::weak_ptr<WaitableSink> last = slow;
  slow.reset();
  engine.drain(60s);
  EXPECT_TRUE(last.expired());  // before whoever waited for the end goes on
}

TEST_F(EngineTest, AFullQueueRefuses) {
  config_.sched.max_running = 1;
  Engine engine(config_, runner_, clock_, registry_);
  std::vector<std::shared_ptr<WaitableSink>> sinks;
  core::Status last;
  for (uint64_t i = 1; i < 100 && last; ++i) {
    sinks.push_back(std::make_shared<WaitableSink>());
    last = engine.submit(request(i, 100, 50), sinks.back());
  }
  ASSERT_FALSE(last.has_value());
  EXPECT_EQ(last.error().code, core::Code::kOverloaded);
  EXPECT_GE(sinks.size(), 17u);
}

TEST_F(EngineTest, DrainWaitsThenCutsAndRefusesNewcomers) {
  Engine engine(config_, runner_, clock_, registry_);
  const auto quick = std::make_shared<WaitableSink>();
  const auto endless = std::make_shared<WaitableSink>();
  ASSERT_TRUE(engine.submit(request(1, 5, 1), quick).has_value());
  ASSERT_TRUE(engine.submit(request(2, 900, 100), endless).has_value());
  endless->wait_for_tokens(1);
  EXPECT_EQ(engine.drain(2s), 1u);
  EXPECT_EQ(quick->wait().reason, types::FinishReason::kStop);
  EXPECT_EQ(endless->wait().reason, types::FinishReason::kCancelled);
  EXPECT_EQ(engine.submit(request(3, 5), quick).error().code, core::Code::kUnavailable);
}

TEST_F(EngineTest, DestructionTellsEveryone) {
  const auto sink = std::make_shared<WaitableSink>();
  {
    Engine engine(config_, runner_, clock_, registry_);
    ASSERT_TRUE(engine.submit(request(1, 900, 100), sink).has_value());
  }
  EXPECT_EQ(sink->wait().reason, types::FinishReason::kCancelled);
}

TEST_F(EngineTest, MetricsAddUp) {
  Engine engine(config_, runner_, clock_, registry_);
  for (uint64_t i = 1; i <= 3; ++i) {
    const auto sink = std::make_shared<WaitableSink>();
    ASSERT_TRUE(engine.submit(request(i, 10), sink).has_value());
    sink->wait();
  }
  const std::string text = registry_.prometheus();
  EXPECT_NE(text.find("vllm:generation_tokens_total 30\n"), std::string::npos) << text;
  EXPECT_NE(text.find("vllm:prompt_tokens_total 60\n"), std::string::npos);
  EXPECT_NE(text.find("vllm:prefix_cache_hits_total 32\n"), std::string::npos);
  EXPECT_NE(text.find("vllm:request_success_total{finished_reason=\"stop\"} 3\n"),
            std::string::npos);
}

}  // namespace
}  // namespace hadal::step
