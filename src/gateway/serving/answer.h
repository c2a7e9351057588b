#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/metrics/trace.h"
#include "base/types/engine_port.h"
#include "gateway/http/exchange.h"
#include "gateway/recipe/conversation.h"
#include "gateway/recipe/response_stream.h"

namespace hadal::serving {

// One generation on its way from the engine to a client: takes the tokens of its choices, has the
// recipe write them, and hands the bytes to the connection. Owners: the connection's exchange
// (through its callback), the engine through the choices' sinks, and who keeps it. Thread-safe: the
// engine's thread brings tokens, the connection's thread reports that the client left.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  struct Parts {
    std::shared_ptr<http::Exchange> exchange;   // null: nobody waits for this answer
    std::shared_ptr<recipe::RequestText> text;  // what views in the plan may point into
    std::unique_ptr<recipe::ResponseStream> stream;
    recipe::Api api = recipe::Api::kChat;
    std::string model;  // as the client spelt it, for traces
    bool compat = false;
    bool event_times = false;  // hadal.event_times: a comment ": t=NS" before what a step gave
    types::EnginePort* engine = nullptr;
    metrics::SpanSink* spans = nullptr;  // null: none wanted
    // The answer waits for tools that the server runs: waiting_round() and go_on() are for whoever
    // runs them, on another thread. Unset: there are none.
    std::function<void(std::shared_ptr<Answer>)> run_tools;
    // Generated to its end whether or not its client stays (background responses). Its stream goes
    // to on_events alone, token by token, so that made again it is cut in the same places; the
    // exchange gets what is refused at the start.
    bool detached = false;
    // Takes the events of a stream that is kept, all but the last. On the engine's thread.
    std::function<void(std::string_view events)> on_events;
    // Whether an answer that ends with this object is made again by the next process: then no event
    // closes what is open, and who read its stream goes on where it was. Unset: never.
    std::function<bool(const std::string& object)> goes_on_elsewhere;
    // Keeps the finished object and then calls `kept`: what acknowledges the answer to the client
    // (the whole of it, or a stream's last event) waits for that, and an error takes its place.
    // Any thread may call `kept`, once. Unset: nothing is kept. Not called for an answer that
    // failed unless it is detached.
    std::function<void(const std::string& object, std::function<void(core::Status)> kept)> keep;
    // After the last byte was handed over; "" for dialects that have no such object.
    std::function<void(const std::string& final_object)> on_finished;
  };
  explicit Answer(Parts parts);

  // Submits `requests`, one a choice, and begins the answer. An error is answered here; choices
  // that were taken are cancelled.
  void start(std::vector<types::Request> requests, const recipe::Usage& prompt);
  // The answer ends early by somebody else's wish (a cancel call, a client that left).
  void cancel();
  bool begun() const { return begun_; }  // the engine works on it

  // The round whose calls wait, and the tokens written so far.
  recipe::ResponseStream::Round waiting_round(uint32_t& n_written);
  // Shows the results, then begins the next round, or ends the answer without one.
  void show(const std::vector<recipe::ServerToolResult>& results);
  void go_on(types::Request request);
  void end_rounds(bool pause);
  void fail(core::Error error);

 private:
  class Sink;
  void on_start(uint32_t n_cached);
  types::SinkAnswer on_tokens(uint32_t choice, std::span<const types::TokenEvent> events,
                              size_t& n_taken);
  void on_done(uint32_t choice, const types::Completion& completion);
  void ensure_started();  // mutex_ held
  void push();            // mutex_ held, or ended_
  // out_ has the last bytes. `lock` holds mutex_, and does not afterwards.
  void finish(std::unique_lock<std::mutex>& lock);
  void deliver(core::Status kept);
  void respond_error(const core::Error& error);

  Parts parts_;
  // What a cancel needs; apart, for it may come while the connection's lock is held.
  std::mutex ids_mutex_;  // guards ids_, cancelled_
  std::vector<types::RequestId> ids_;
  bool cancelled_ = false;

  std::mutex mutex_;                      // guards what follows, and parts_.stream
  std::string out_;                       // bytes of this call; a whole answer's body
  bool started_ = false, ended_ = false;  // ended_: nobody but finish() goes on
  std::atomic<bool> begun_{false};
};

}  // namespace hadal::serving
