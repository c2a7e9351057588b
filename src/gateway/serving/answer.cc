#include "gateway/serving/answer.h"

#include <fmt/format.h>

#include "base/core/log.h"
#include "gateway/recipe/error_body.h"
#include "gateway/serving/generation_trace.h"

namespace hadal::serving {

class Answer::Sink final : public types::TokenSink {
 public:
  Sink(std::shared_ptr<Answer> answer, uint32_t choice)
      : answer_(std::move(answer)), choice_(choice) {}
  void on_start(uint32_t n_cached) override { answer_->on_start(n_cached); }
  types::SinkAnswer on_tokens(std::span<const types::TokenEvent> events, size_t& n_taken) override {
    return answer_->on_tokens(choice_, events, n_taken);
  }
  void on_done(const types::Completion& completion) override {
    answer_->on_done(choice_, completion);
  }

 private:
  const std::shared_ptr<Answer> answer_;
  const uint32_t choice_;
};

namespace {

// Where the last server-sent event of `events` begins.
size_t last_event(std::string_view events) {
  if (events.size() < 3) return 0;
  const size_t end = events.rfind("\n\n", events.size() - 3);
  return end == std::string_view::npos ? 0 : end + 2;
}

}  // namespace

Answer::Answer(Parts parts) : parts_(std::move(parts)) {}

void Answer::start(std::vector<types::Request> requests, const recipe::Usage& prompt) {
  const auto self = shared_from_this();
  std::optional<core::Error> failure;
  {
    const std::lock_guard lock(ids_mutex_);
    for (const types::Request& request : requests) ids_.push_back(request.id);
  }
  parts_.stream->begin(prompt, out_);  // nobody else knows of this answer yet
  {
    // With several choices the tokens of the first wait until the last is taken: a refusal must
    // find nothing sent. One choice waits for nothing, so that the engine's thread never does.
    std::unique_lock lock(mutex_, std::defer_lock);
    if (requests.size() > 1) lock.lock();
    for (size_t i = 0; i < requests.size() && !failure; ++i) {
      const core::Status status = parts_.engine->submit(
          std::move(requests[i]), std::make_shared<Sink>(self, static_cast<uint32_t>(i)));
      if (!status) failure = status.error();
    }
    if (!lock.owns_lock()) lock.lock();
    if (failure) {
      ended_ = true;
    } else {
      ensure_started();
    }
  }
  if (failure) {
    cancel();
    respond_error(*failure);
    const auto finished = [self](const std::string& object) {
      if (self->parts_.on_finished) self->parts_.on_finished(object);
    };
    if (!parts_.detached || !parts_.keep) return finished({});
    std::string unsent;
    parts_.stream->fail(*failure, unsent);
    const std::string object = parts_.stream->final_object();
    parts_.keep(object, [finished, object](const core::Status&) { finished(object); });
    return;
  }
  if (parts_.exchange == nullptr || parts_.detached) return;
  // The exchange keeps the answer until the connection is through with it, so that most of what
  // this thread allocated is freed by it and not by the engine's, which would wait for the heap.
  parts_.exchange->on_closed([self] { self->cancel(); });
}

void Answer::respond_error(const core::Error& error) {
  if (parts_.exchange == nullptr) return;
  http::Response response{recipe::http_status(error.code),
                          "application/json",
                          {},
                          recipe::error_body(error, parts_.api, parts_.compat)};
  if (response.status == 429 || response.status == 503)
    response.headers.push_back({"Retry-After", "1"});
  parts_.exchange->respond(std::move(response));
}

// Sends the head of a stream, with what begin() wrote; whoever comes first does it.
void Answer::ensure_started() {
  if (started_) return;
  started_ = true;
  if (!parts_.stream->streamed()) return;
  if (parts_.on_events) parts_.on_events(out_);
  if (parts_.exchange == nullptr || parts_.detached) return;
  parts_.exchange->start_stream(
      {200, "text/event-stream; charset=utf-8", {{"X-Accel-Buffering", "no"}}, std::move(out_)});
  out_.clear();
}

void Answer::cancel() {
  const std::lock_guard lock(ids_mutex_);
  cancelled_ = true;
  for (const types::RequestId id : ids_) parts_.engine->cancel(id);
}

recipe::ResponseStream::Round Answer::waiting_round(uint32_t& n_written) {
  const std::lock_guard lock(mutex_);
  n_written = parts_.stream->usage().completion_tokens;
  return *parts_.stream->waiting();
}

void Answer::show(const std::vector<recipe::ServerToolResult>& results) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  for (const recipe::ServerToolResult& result : results) parts_.stream->add_result(result, out_);
  push();
}

void Answer::go_on(types::Request request) {
  const types::RequestId id = request.id;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    parts_.stream->begin_round(static_cast<uint32_t>(request.prompt.size()));
  }
  const auto cancelled = [this] {
    const std::lock_guard lock(ids_mutex_);
    return cancelled_;
  };
  {
    const std::lock_guard lock(ids_mutex_);
    ids_ = {id};
  }
  if (cancelled()) return fail({core::Code::kCancelled, "the request was cancelled"});
  const core::Status status =
      parts_.engine->submit(std::move(request), std::make_shared<Sink>(shared_from_this(), 0));
  if (!status) return fail(status.error());
  if (cancelled()) parts_.engine->cancel(id);  // it came while the engine did not know the id yet
}

void Answer::end_rounds(bool pause) {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  parts_.stream->end_round(pause, out_);
  finish(lock);
}

void Answer::fail(core::Error error) {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  parts_.stream->fail(std::move(error), out_);
  finish(lock);
}

void Answer::push() {
  if (!parts_.stream->streamed()) return;
  if (parts_.on_events) parts_.on_events(out_);
  if (parts_.exchange != nullptr && !parts_.detached && !out_.empty())
    parts_.exchange->push_unbounded(out_);
  out_.clear();
}

void Answer::on_start(uint32_t n_cached) {
  begun_ = true;
  const std::lock_guard lock(mutex_);
  parts_.stream->on_start(n_cached);
}

types::SinkAnswer Answer::on_tokens(uint32_t choice, std::span<const types::TokenEvent> events,
                                    size_t& n_taken) {
  const std::lock_guard lock(mutex_);
  n_taken = 0;
  if (ended_) {
    n_taken = events.size();
    return types::SinkAnswer::kStop;
  }
  ensure_started();
  if (!parts_.stream->streamed()) return parts_.stream->on_tokens(choice, events, n_taken, out_);
  out_.clear();
  if (parts_.detached) {
    types::SinkAnswer answer = types::SinkAnswer::kContinue;
    for (size_t i = 0; i < events.size() && answer == types::SinkAnswer::kContinue; ++i) {
      size_t n = 0;
      answer = parts_.stream->on_tokens(choice, events.subspan(i, 1), n, out_);
      n_taken += n;
    }
    push();
    return answer;
  }
  if (parts_.exchange != nullptr && !parts_.exchange->has_room()) return types::SinkAnswer::kFull;
  if (parts_.event_times && !events.empty()) {
    fmt::format_to(std::back_inserter(out_), ": t={}\n",
                   std::chrono::nanoseconds(events.front().at.time_since_epoch()).count());
  }
  const types::SinkAnswer answer = parts_.stream->on_tokens(choice, events, n_taken, out_);
  push();
  return answer;
}

void Answer::on_done(uint32_t choice, const types::Completion& completion) {
  std::unique_lock lock(mutex_);
  if (parts_.spans != nullptr && parts_.exchange != nullptr)
    trace_generation(parts_.exchange->request(), parts_.model, choice, completion, *parts_.spans);
  if (ended_) return;
  ensure_started();
  if (parts_.stream->streamed()) out_.clear();
  const bool ended = parts_.stream->on_done(choice, completion, out_);
  if (const std::string lost = parts_.stream->lost_markup(choice); !lost.empty()) {
    HADAL_LOG(kWarning, "serve", "call markup the client does not see: {} choice={}{}", lost,
              choice,
              parts_.exchange ? " id=" + parts_.exchange->request().request_id : std::string());
  }
  if (ended) return finish(lock);
  push();
  if (parts_.stream->waiting() != nullptr) parts_.run_tools(shared_from_this());
}

void Answer::finish(std::unique_lock<std::mutex>& lock) {
  ended_ = true;
  lock.unlock();
  if (!parts_.keep || (parts_.stream->failed() && !parts_.detached)) return deliver({});
  if (parts_.goes_on_elsewhere && parts_.goes_on_elsewhere(parts_.stream->final_object())) {
    out_.clear();
  } else if (parts_.stream->streamed()) {
    const size_t last = last_event(out_);
    std::string event = out_.substr(last);
    out_.resize(last);
    push();
    out_ = std::move(event);
  }
  parts_.keep(parts_.stream->final_object(),
              [self = shared_from_this()](core::Status kept) { self->deliver(std::move(kept)); });
}

void Answer::deliver(core::Status kept) {
  if (!kept && !parts_.stream->failed()) {
    out_.clear();
    parts_.stream->fail(kept.error(), out_);
  }
  if (const auto& failed = parts_.stream->failed(); failed && !parts_.stream->streamed()) {
    respond_error(*failed);
  } else if (parts_.exchange != nullptr && parts_.stream->streamed()) {
    if (!parts_.detached) {
      parts_.exchange->push_unbounded(out_);
      parts_.exchange->finish();
    }
  } else if (parts_.exchange != nullptr) {
    parts_.exchange->respond({200, "application/json", {}, std::move(out_)});
  }
  out_ = std::string();
  if (parts_.on_finished) parts_.on_finished(parts_.stream->final_object());
}

}  // namespace hadal::serving
