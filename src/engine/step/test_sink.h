#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/core/clock.h"
#include "base/types/engine_port.h"

namespace hadal::step {

// A clock that stands until it is moved.
class ManualClock final : public core::Clock {
 public:
  core::TimePoint now() const override { return now_; }
  void advance(std::chrono::milliseconds by) { now_ += by; }

 private:
  core::TimePoint now_ = core::TimePoint{} + std::chrono::hours(1);
};

// Collects what it is given. May stop after a number of tokens, or take only so many at a time.
class TestSink final : public types::TokenSink {
 public:
  explicit TestSink(size_t stop_after = SIZE_MAX) : stop_after_(stop_after) {}

  void on_start(uint32_t n_cached_tokens) override { n_cached = n_cached_tokens; }
  types::SinkAnswer on_tokens(std::span<const types::TokenEvent> events, size_t& n_taken) override {
    for (n_taken = 0; n_taken < events.size(); ++n_taken) {
      if (room == 0) return types::SinkAnswer::kFull;
      --room;
      ids.push_back(events[n_taken].token);
      if (ids.size() == stop_after_) {
        ++n_taken;
        return types::SinkAnswer::kStop;
      }
    }
    return types::SinkAnswer::kContinue;
  }
  void on_done(const types::Completion& completion) override {
    ++n_done;
    done = completion;
  }

  std::vector<types::TokenId> ids;
  size_t room = SIZE_MAX;  // tokens that fit before it is full
  std::optional<uint32_t> n_cached;
  int n_done = 0;
  types::Completion done;

 private:
  size_t stop_after_;
};

}  // namespace hadal::step
