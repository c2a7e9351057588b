#include "main/batch_job.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_writer.h"
#include "main/codec_line.h"

namespace hadal::main {

void BatchResults::push(BatchResult result) {
  {
    const std::lock_guard lock(mutex_);
    results_.push_back(std::move(result));
  }
  news_.notify_one();
}

std::vector<BatchResult> BatchResults::take(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, patience, [&] { return !results_.empty(); });
  return std::exchange(results_, {});
}

BatchResult refused_line(const BatchIdentity& identity, std::string_view message) {
  BatchResult result{.refused = true};
  std::string text;
  recipe::append_quoted(text, message);
  result.line = fmt::format(
      R"({{"id":"{}","custom_id":{},"response":null,"error":{{"code":"invalid_line","message":{}}}}})",
      identity.line_id, identity.custom_id_json, text);
  result.line += '\n';
  return result;
}

BatchResult result_line(const BatchIdentity& identity, int status, std::string_view body,
                        uint32_t n_tokens) {
  BatchResult result{.n_choices = 0, .n_tokens = n_tokens, .refused = status != 200};
  result.line = one_line(fmt::format(
      R"({{"id":"{}","custom_id":{},"response":{{"status_code":{},"request_id":"{}","body":{}}},"error":null}})",
      identity.line_id, identity.custom_id_json, status, identity.request_id, body));
  result.line += '\n';
  return result;
}

class BatchJob::Sink final : public types::TokenSink {
 public:
  Sink(std::shared_ptr<BatchJob> job, uint32_t choice) : job_(std::move(job)), choice_(choice) {}

  void on_start(uint32_t n_cached) override {
    const std::lock_guard lock(job_->mutex_);
    job_->parts_.stream->on_start(n_cached);
  }
  types::SinkAnswer on_tokens(std::span<const types::TokenEvent> events, size_t& n_taken) override {
    const std::lock_guard lock(job_->mutex_);
    n_taken = events.size();
    if (job_->ended_) return types::SinkAnswer::kStop;
    return job_->parts_.stream->on_tokens(choice_, events, n_taken, job_->body_);
  }
  void on_done(const types::Completion& completion) override {
    const std::lock_guard lock(job_->mutex_);
    if (job_->ended_) return;
    if (job_->parts_.stream->on_done(choice_, completion, job_->body_)) job_->finish(nullptr);
  }

 private:
  const std::shared_ptr<BatchJob> job_;
  const uint32_t choice_;
};

void BatchJob::start(types::EnginePort& engine, std::vector<types::Request> requests,
                     const recipe::Usage& prompt) {
  std::vector<types::RequestId> taken;
  {
    // The first tokens wait for this lock.
    const std::lock_guard lock(mutex_);
    n_choices_ = static_cast<uint32_t>(requests.size());
    parts_.stream->begin(prompt, body_);
    for (uint32_t i = 0; i < requests.size(); ++i) {
      const types::RequestId id = requests[i].id;
      const core::Status status =
          engine.submit(std::move(requests[i]), std::make_shared<Sink>(shared_from_this(), i));
      if (status) {
        taken.push_back(id);
        continue;
      }
      finish(&status.error());
      break;
    }
    if (!ended_) return;
  }
  for (const types::RequestId id : taken) engine.cancel(id);
}

void BatchJob::finish(const core::Error* error) {
  ended_ = true;
  const auto& failed = parts_.stream->failed();
  if (error == nullptr && failed) error = &*failed;
  BatchResult result =
      error != nullptr
          ? result_line(parts_.identity, recipe::http_status(error->code),
                        recipe::error_body(*error, parts_.api, false), 0)
          : result_line(parts_.identity, 200, body_, parts_.stream->usage().completion_tokens);
  result.n_choices = n_choices_;
  parts_.results->push(std::move(result));
}

}  // namespace hadal::main
