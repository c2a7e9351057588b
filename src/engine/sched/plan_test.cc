#include "engine/sched/plan.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace hadal::sched {
namespace {

TEST(PlanText, ComesBackAsItWas) {
  StepPlan plan;
  plan.expire = {SeqKey{4}};
  plan.preempt = {SeqKey{7}, SeqKey{8}};
  plan.admit = {SeqKey{9}};
  plan.chunks = {{SeqKey{1}, 130, 1, 0, true}, {SeqKey{9}, 0, 128, 1, false}};
  const std::string text = to_text(plan);
  EXPECT_EQ(text, "expire 4; preempt 7 8; admit 9; run 1@130+1! 9@0+128*1");
  const auto back = plan_from_text(text);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, plan);
  EXPECT_EQ(*plan_from_text(""), StepPlan{});
  for (const char* wrong : {"go 1", "run 1", "run 1@2", "run x@1+1", "admit one"})
    EXPECT_FALSE(plan_from_text(wrong).has_value()) << wrong;
}

TEST(OrderWaiting, PriorityThenAgeThenTenantThenArrival) {
  SchedConfig config;
  config.ageing_s = 10;
  const auto view = [](uint64_t seq, int32_t priority, double waited, double served) {
    WaitingView v;
    v.seq = SeqKey{seq};
    v.priority = priority;
    v.waited_s = waited;
    v.tenant_served = served;
    v.arrival = seq;
    return v;
  };
  std::vector<WaitingView> waiting{view(1, 0, 5, 900), view(2, 0, 5, 100), view(3, 2, 0, 900),
                                   view(4, 0, 35, 900)};
  order_waiting(config, waiting, 4);
  EXPECT_EQ(waiting[0].seq, SeqKey{4}) << "aged by three";
  EXPECT_EQ(waiting[1].seq, SeqKey{3});
  EXPECT_EQ(waiting[2].seq, SeqKey{2}) << "its tenant had less";
  EXPECT_EQ(waiting[3].seq, SeqKey{1});
}

// testdata/*.trace: what is there, line by line, and after "plan" what must come of it.
//   config  block=4 step=16 chunk=8 running=4
//   supply  blocks=10 slots=4
//   running 1 tokens=9 computed=8 blocks=2 [exclusive=2] [priority=0] [decoding] [paused] [expired]
//   waiting 2 tokens=20 [hit=1] [cached=1] [start=4] [priority=0] [expired] [cut=16]
//   plan    run 1@8+1*1! ...
struct Scene {
  SchedConfig config;
  Supply supply;
  std::vector<RunningView> running;
  std::vector<WaitingView> waiting;
};

std::map<std::string, uint32_t> fields_of(std::istringstream& words) {
  std::map<std::string, uint32_t> fields;
  for (std::string word; words >> word;) {
    const size_t at = word.find('=');
    fields[word.substr(0, at)] =
        at == std::string::npos ? 1 : static_cast<uint32_t>(std::stoul(word.substr(at + 1)));
  }
  return fields;
}

void add_running(Scene& scene, uint64_t seq, std::map<std::string, uint32_t> f) {
  RunningView v;
  v.seq = SeqKey{seq};
  v.arrival = seq;
  v.n_tokens = f["tokens"];
  v.n_computed = f["computed"];
  v.n_blocks = f["blocks"];
  v.n_exclusive = f.contains("exclusive") ? f["exclusive"] : v.n_blocks;
  v.priority = static_cast<int32_t>(f["priority"]);
  v.decoding = f["decoding"] != 0;
  v.runnable = f["paused"] == 0;
  v.expired = f["expired"] != 0;
  v.cut_at = f["cut"];
  scene.running.push_back(v);
}

void add_waiting(Scene& scene, uint64_t seq, std::map<std::string, uint32_t> f) {
  WaitingView v;
  v.seq = SeqKey{seq};
  v.arrival = seq;
  v.n_tokens = f["tokens"];
  v.n_hit_blocks = f["hit"];
  v.n_hit_cached = f["cached"];
  v.start = f["start"];
  v.priority = static_cast<int32_t>(f["priority"]);
  v.expired = f["expired"] != 0;
  v.cut_at = f["cut"];
  scene.waiting.push_back(v);
}

TEST(PlanStep, FollowsTheTraces) {
  int n_plans = 0;
  const std::filesystem::path folder =
      std::filesystem::path(HADAL_SOURCE_DIR) / "src/engine/sched/testdata";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path());
    Scene scene;
    int n_line = 0;
    for (std::string line; std::getline(in, line);) {
      ++n_line;
      std::istringstream words(line);
      std::string verb;
      if (!(words >> verb) || verb[0] == '#') continue;
      if (verb == "plan") {
        std::string want;
        std::getline(words >> std::ws, want);
        order_waiting(scene.config, scene.waiting, scene.waiting.size());
        EXPECT_EQ(to_text(plan_step(scene.config, scene.supply, scene.running, scene.waiting)),
                  want)
            << file.path().filename() << ':' << n_line;
        scene = {};
        ++n_plans;
        continue;
      }
      uint64_t seq = 0;
      if (verb == "running" || verb == "waiting") words >> seq;
      auto f = fields_of(words);
      if (verb == "config") {
        scene.config.block_tokens = f["block"];
        scene.config.step_tokens = f["step"];
        scene.config.prefill_chunk = f["chunk"];
        scene.config.max_running = f["running"];
      } else if (verb == "supply") {
        scene.supply = {f["blocks"], f["slots"]};
      } else if (verb == "running") {
        add_running(scene, seq, f);
      } else {
        ASSERT_EQ(verb, "waiting") << file.path().filename() << ':' << n_line;
        add_waiting(scene, seq, f);
      }
    }
  }
  EXPECT_GE(n_plans, 12);
}

}  // namespace
}  // namespace hadal::sched
