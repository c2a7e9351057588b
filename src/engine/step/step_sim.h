#pragma once

#include <map>
#include <random>

#include "base/core/check.h"
#include "engine/step/script_runner.h"
#include "engine/step/step_loop.h"
#include "engine/step/test_sink.h"

namespace hadal::step {

// Scheduler, cache and loop under random traffic on a pool of 256 blocks: arrivals with shared
// beginnings, tenants, priorities, deadlines, cancels, slow readers and early stops. Every reader
// must get its own script's beginning, once, and be told the end once; integrity is checked after
// every step. The same seed is the same traffic.
class StepSimulation {
 public:
  explicit StepSimulation(uint32_t seed) : generator_(seed) {
    EngineConfig config;
    config.sched.block_tokens = 4;
    config.sched.step_tokens = 64;
    config.sched.prefill_chunk = 24;
    config.sched.max_running = 24;
    config.n_blocks = 256;
    config.n_ghosts = 256;
    config.check_every = 1;
    loop_ = std::make_unique<StepLoop>(config, runner_, clock_, metrics_, nullptr);
  }

  void run(uint64_t n_steps) {
    while (loop_->n_steps() < n_steps) {
      if (loop_->n_inside() < 60 && random(3) == 0) arrive();
      if (random(40) == 0 && !live_.empty()) cancel_one();
      if (random(10) == 0) make_room();
      if (!loop_->step()) clock_.advance(std::chrono::milliseconds(5));
      if (random(4) == 0) clock_.advance(std::chrono::milliseconds(random(20)));
      if (random(16) == 0) look_after_the_ended();
    }
    while (loop_->n_inside() > 0) {
      make_room();
      if (!loop_->step()) clock_.advance(std::chrono::milliseconds(5));
    }
    look_after_the_ended();
    HADAL_CHECK(live_.empty() && loop_->pool().n_held() == 0, "something is left");
  }

  uint64_t n_requests() const { return n_requests_; }
  uint64_t n_preemptions() const { return metrics_.preemptions.value(); }
  uint64_t n_hits() const { return metrics_.prefix_hits.value(); }

 private:
  struct Live {
    std::shared_ptr<TestSink> sink;
    uint32_t n_output = 0;
  };
  uint32_t random(uint32_t n) { return static_cast<uint32_t>(generator_() % n); }

  void arrive() {
    types::Request r;
    r.id = types::RequestId{++n_requests_};
    r.tenant = std::string(1, static_cast<char>('a' + random(3)));
    const uint32_t family = random(12);
    const uint32_t n_shared = random(60);
    for (uint32_t i = 0; i < n_shared; ++i)
      r.prompt.push_back(static_cast<types::TokenId>(family * 60 + i));
    for (uint32_t i = 1 + random(random(8) == 0 ? 300 : 30); i > 0; --i)
      r.prompt.push_back(static_cast<types::TokenId>(random(1000)));
    r.max_tokens = 1 + random(80);
    r.priority = random(10) == 0 ? 2 : 0;
    if (random(12) == 0) r.deadline = clock_.now() + std::chrono::milliseconds(random(2000));
    r.use_prefix_cache = random(10) != 0;
    Live live{std::make_shared<TestSink>(random(6) == 0 ? 1 + random(30) : SIZE_MAX), random(90)};
    r.script.emplace();
    for (uint32_t i = 0; i < live.n_output; ++i) r.script->tokens.push_back(token(n_requests_, i));
    r.script->step = 1 + random(4);
    if (random(20) == 0) r.script->pace_ms = random(30);
    if (random(10) == 0) live.sink->room = random(20);
    auto sequence = loop_->make_sequence(std::move(r), live.sink);
    HADAL_CHECK(sequence.has_value(), "refused");
    loop_->add(std::move(*sequence));
    live_.emplace(n_requests_, std::move(live));
  }
  void cancel_one() {
    auto at = live_.begin();
    std::advance(at, random(static_cast<uint32_t>(live_.size())));
    loop_->cancel(types::RequestId{at->first});
  }
  void make_room() {
    for (auto& [id, live] : live_) {
      if (live.sink->room < 1000 && random(2) == 0) live.sink->room += random(30);
    }
  }
  void look_after_the_ended() {
    for (auto at = live_.begin(); at != live_.end();) {
      const TestSink& sink = *at->second.sink;
      for (size_t i = 0; i < sink.ids.size(); ++i)
        HADAL_CHECK(sink.ids[i] == token(at->first, static_cast<uint32_t>(i)), "a wrong token");
      HADAL_CHECK(sink.n_done <= 1 && sink.ids.size() <= at->second.n_output, "an extra token");
      if (sink.n_done == 0) {
        ++at;
        continue;
      }
      HADAL_CHECK(sink.done.n_generated_tokens == sink.ids.size(), "usage");
      at = live_.erase(at);
    }
  }
  static types::TokenId token(uint64_t id, uint32_t i) {
    return static_cast<types::TokenId>((id * 131 + i * 7) % 1000);
  }

  std::mt19937 generator_;
  ScriptRunner runner_{24, 1000};
  ManualClock clock_;
  metrics::Registry registry_;
  EngineMetrics metrics_{registry_};
  std::unique_ptr<StepLoop> loop_;
  std::map<uint64_t, Live> live_;
  uint64_t n_requests_ = 0;
};

}  // namespace hadal::step
