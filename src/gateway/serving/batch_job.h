#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "base/types/engine_port.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/response_stream.h"
#include "gateway/serving/request_maker.h"

namespace hadal::serving {

struct BatchResult {
  int64_t batch = 0;      // BatchIdentity
  uint64_t number = 0;    // likewise
  std::string line = {};  // as it is written, with its newline
  uint32_t n_choices = 0;
  uint32_t n_tokens = 0;
  bool refused = false;
  // Set when the engine took or kept it not (full, draining, cancelled): the line may be tried
  // again.
  std::optional<core::Code> cut = {};
};

// Results on their way from the engine's thread to the one that writes.
class BatchResults {
 public:
  void push(BatchResult result);
  // Moves out what is there; waits at most `patience` if nothing is.
  std::vector<BatchResult> take(std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<BatchResult> results_;
};

// Names of a result that do not depend on the answer.
struct BatchIdentity {
  int64_t batch = 0;    // whose line it is; 0 where there is one input only
  uint64_t number = 0;  // of the line, from 1
  std::string custom_id_json = "null";
  std::string request_id = {};
};
// A line that could not become an HTTP request at all, or was not tried.
BatchResult refused_line(const BatchIdentity& identity, std::string_view code,
                         std::string_view message);
// The answer that HTTP would have given.
BatchResult result_line(const BatchIdentity& identity, int status, std::string_view body,
                        uint32_t n_tokens);

// One line's generation: gathers the choices and leaves the result in a BatchResults. Shared by the
// engine's sinks. Thread-safe.
class BatchJob : public std::enable_shared_from_this<BatchJob> {
 public:
  // `results` outlives the job.
  BatchJob(BatchIdentity identity, MadeRequest made, BatchResults& results)
      : identity_(std::move(identity)), made_(std::move(made)), results_(results) {}

  // Submits one request a choice. A refusal is a result, too.
  void start(types::EnginePort& engine);
  // Ends it early, with a result that is `cut`.
  void cancel(types::EnginePort& engine);
  uint32_t n_choices() const { return n_choices_; }

 private:
  class Sink;
  void finish(const core::Error* error);  // mutex_ held

  const BatchIdentity identity_;
  MadeRequest made_;
  BatchResults& results_;
  std::vector<types::RequestId> ids_;  // constant after the first submit
  uint32_t n_choices_ = 0;             // likewise
  std::mutex mutex_;                   // guards what follows, and made_.stream
  std::string body_;
  bool ended_ = false;
};

// A line's body on its way: parsed and submitted, or refused at once into `results`. Null if it was
// refused.
std::shared_ptr<BatchJob> start_batch_line(RequestMaker& maker, types::EnginePort& engine,
                                           const Dialect& dialect, std::string body,
                                           const Origin& origin, BatchIdentity identity,
                                           BatchResults& results);

}  // namespace hadal::serving
