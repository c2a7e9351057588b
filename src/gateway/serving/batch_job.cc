#include "gateway/serving/batch_job.h"

#include <utility>

#include <fmt/format.h>

#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/serving/batch_line.h"

namespace hadal::serving {

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

BatchResult refused_line(const BatchIdentity& identity, std::string_view code,
                         std::string_view message) {
  BatchResult result{.batch = identity.batch, .number = identity.number, .refused = true};
  std::string text;
  recipe::append_quoted(text, message);
  result.line = fmt::format(
      R"({{"id":"{}","custom_id":{},"response":null,"error":{{"code":"{}","message":{}}}}})",
      batch_line_id(identity.number), identity.custom_id_json, code, text);
  result.line += '\n';
  return result;
}

BatchResult result_line(const BatchIdentity& identity, int status, std::string_view body,
                        uint32_t n_tokens) {
  BatchResult result{.batch = identity.batch,
                     .number = identity.number,
                     .n_tokens = n_tokens,
                     .refused = status != 200};
  result.line = recipe::one_line(fmt::format(
      R"({{"id":"{}","custom_id":{},"response":{{"status_code":{},"request_id":"{}","body":{}}},"error":null}})",
      batch_line_id(identity.number), identity.custom_id_json, status, identity.request_id, body));
  result.line += '\n';
  return result;
}

class BatchJob::Sink final : public types::TokenSink {
 public:
  Sink(std::shared_ptr<BatchJob> job, uint32_t choice) : job_(std::move(job)), choice_(choice) {}

  void on_start(uint32_t n_cached) override {
    const std::lock_guard lock(job_->mutex_);
    job_->made_.stream->on_start(n_cached);
  }
  types::SinkAnswer on_tokens(std::span<const types::TokenEvent> events, size_t& n_taken) override {
    const std::lock_guard lock(job_->mutex_);
    n_taken = events.size();
    if (job_->ended_) return types::SinkAnswer::kStop;
    return job_->made_.stream->on_tokens(choice_, events, n_taken, job_->body_);
  }
  void on_done(const types::Completion& completion) override {
    const std::lock_guard lock(job_->mutex_);
    if (job_->ended_) return;
    if (job_->made_.stream->on_done(choice_, completion, job_->body_)) job_->finish(nullptr);
  }

 private:
  const std::shared_ptr<BatchJob> job_;
  const uint32_t choice_;
};

void BatchJob::start(types::EnginePort& engine) {
  std::vector<types::Request> requests = std::move(made_.requests);
  for (const types::Request& request : requests) ids_.push_back(request.id);
  n_choices_ = static_cast<uint32_t>(requests.size());
  {
    // The first tokens wait for this lock.
    const std::lock_guard lock(mutex_);
    made_.stream->begin(made_.prompt, body_);
    for (uint32_t i = 0; i < requests.size() && !ended_; ++i) {
      const core::Status status =
          engine.submit(std::move(requests[i]), std::make_shared<Sink>(shared_from_this(), i));
      if (!status) finish(&status.error());
    }
    if (!ended_) return;
  }
  cancel(engine);
}

void BatchJob::cancel(types::EnginePort& engine) {
  for (const types::RequestId id : ids_) engine.cancel(id);
}

void BatchJob::finish(const core::Error* error) {
  ended_ = true;
  const auto& failed = made_.stream->failed();
  if (error == nullptr && failed) error = &*failed;
  BatchResult result =
      error != nullptr
          ? result_line(identity_, recipe::http_status(error->code),
                        recipe::error_body(*error, made_.api, false), 0)
          : result_line(identity_, 200, body_, made_.stream->usage().completion_tokens);
  result.n_choices = n_choices_;
  if (error != nullptr &&
      (error->code == core::Code::kOverloaded || error->code == core::Code::kUnavailable ||
       error->code == core::Code::kCancelled)) {
    result.cut = error->code;
  }
  body_ = std::string();
  results_.push(std::move(result));
}

std::shared_ptr<BatchJob> start_batch_line(RequestMaker& maker, types::EnginePort& engine,
                                           const Dialect& dialect, std::string body,
                                           const Origin& origin, BatchIdentity identity,
                                           BatchResults& results) {
  auto made = maker.make(dialect, std::move(body), origin);
  if (made && made->stream->streamed()) {
    made = core::Error{core::Code::kInvalidRequest,
                       "a batch's answers are not streamed; leave stream out", "stream"};
  }
  if (!made) {
    identity.request_id = fmt::format("{}{}", dialect.id_prefix, maker.new_name());
    results.push(result_line(identity, recipe::http_status(made.error().code),
                             recipe::error_body(made.error(), dialect.api, false), 0));
    return nullptr;
  }
  identity.request_id = made->id;
  auto job = std::make_shared<BatchJob>(std::move(identity), std::move(*made), results);
  job->start(engine);
  return job;
}

}  // namespace hadal::serving
