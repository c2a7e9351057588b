#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/types/engine_port.h"
#include "gateway/serving/batch_input.h"
#include "gateway/serving/batch_job.h"
#include "gateway/serving/request_maker.h"
#include "gateway/store/store.h"

namespace hadal::serving {

// Works through the batches of the store, line by line, in the same engine as everybody else's
// requests and behind them. A result is in the store before its line counts as done, so that a
// process that ends in any way leaves each line either done or to be done: none lost, none twice.
//
// One thread of its own; wake() and stop() from any other. All references outlive it; stop it
// before the engine and the store end.
class BatchRunner {
 public:
  struct Config {
    uint32_t max_in_flight = 32;               // choices in the engine, of all batches together
    uint64_t max_in_flight_bytes = 64u << 20;  // of their lines
    int32_t priority = -100;                   // of their requests; those of clients have 0
  };
  BatchRunner(const Config& config, store::Store& store, RequestMaker& maker,
              types::EnginePort& engine);
  ~BatchRunner();

  void start();  // goes on with what the store holds
  void wake();   // a batch is new, or to be cancelled
  // Cuts what runs, keeps what is done, and ends. The next process goes on.
  void stop();

  static constexpr uint64_t kMostLines = 50'000;  // of a batch, as the API's reference has it

 private:
  using Clock = std::chrono::steady_clock;
  // A batch that has not ended.
  struct Active {
    Active(store::Store& store, store::StoredBatch stored)
        : row(std::move(stored)), input(store, row.tenant, row.input_file) {}
    store::StoredBatch row;
    BatchInput input;
    bool at_end = false;
    std::set<uint64_t> done;             // of the lines looked up: those that have a result
    uint64_t looked_up_to = 1;           // the first line not looked up
    std::deque<BatchInput::Line> again;  // lines that the engine could not take, or that were cut
    std::map<uint64_t, uint32_t> n_aborts;  // by line: how often an operator ended it
    uint32_t n_in_flight = 0;               // lines
    bool expired = false;
    std::vector<store::BatchResultLine> unwritten;

    bool ending() const { return expired || row.state == store::BatchState::kCancelling; }
  };
  struct InFlight {
    std::shared_ptr<BatchJob> job;
    BatchInput::Line line;
    uint32_t n_choices = 0;
  };

  void run(const std::stop_token& stop);
  core::Status find_batches();
  core::Status validate(Active& batch);
  core::Status advance(Active& batch);
  core::Status expire_rest(Active& batch);
  core::Result<bool> next_line(Active& batch, BatchInput::Line& line);
  void begin_line(Active& batch, BatchInput::Line line);
  static BatchIdentity identity_of(const Active& batch, const BatchInput::Line& line);
  void aborted(Active& batch, BatchInput::Line line);
  void collect(std::chrono::milliseconds patience, bool stopping);
  core::Status write_results(Active& batch);
  core::Status finish(Active& batch);
  core::Status update(Active& batch);
  void cancel_jobs(const Active* of_batch);
  bool has_room() const;
  void wait(const std::stop_token& stop);

  const Config config_;
  store::Store& store_;
  RequestMaker& maker_;
  types::EnginePort& engine_;
  BatchResults results_;

  // The thread's own.
  std::map<int64_t, Active> active_;
  std::map<std::pair<int64_t, uint64_t>, InFlight> in_flight_;  // by batch and line
  uint32_t n_choices_ = 0;
  uint64_t in_flight_bytes_ = 0;
  Clock::time_point engine_full_until_{};  // the engine took no more: begin nothing before

  std::mutex mutex_;  // guards woken_
  std::condition_variable_any news_;
  bool woken_ = true;
  std::jthread thread_;
};

}  // namespace hadal::serving
