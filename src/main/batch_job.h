#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/types/engine_port.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/response_stream.h"

namespace hadal::main {

struct BatchResult {
  std::string line = {};  // as it is written, with its newline
  uint32_t n_choices = 0;
  uint32_t n_tokens = 0;
  bool refused = false;
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
  std::string line_id;
  std::string custom_id_json = "null";
  std::string request_id;
};
// A line that could not become an HTTP request at all.
BatchResult refused_line(const BatchIdentity& identity, std::string_view message);
// The answer that HTTP would have given.
BatchResult result_line(const BatchIdentity& identity, int status, std::string_view body,
                        uint32_t n_tokens);

// One line's generation: gathers the choices and leaves the result in a BatchResults. Shared by the
// engine's sinks. Thread-safe.
class BatchJob : public std::enable_shared_from_this<BatchJob> {
 public:
  struct Parts {
    BatchIdentity identity;
    std::shared_ptr<recipe::RequestText> text;  // what views in the plan may point into
    std::unique_ptr<recipe::ResponseStream> stream;
    recipe::Api api = recipe::Api::kChat;
    BatchResults* results = nullptr;  // outlives the job
  };
  explicit BatchJob(Parts parts) : parts_(std::move(parts)) {}

  // Submits one request a choice. A refusal is a result, too.
  void start(types::EnginePort& engine, std::vector<types::Request> requests,
             const recipe::Usage& prompt);

 private:
  class Sink;
  void finish(const core::Error* error);  // mutex_ held

  Parts parts_;
  std::mutex mutex_;  // guards what follows, and parts_.stream
  std::string body_;
  uint32_t n_choices_ = 0;
  bool ended_ = false;
};

}  // namespace hadal::main
