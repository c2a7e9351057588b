#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "gateway/http/message.h"

namespace hadal::http {

enum class Push : uint8_t {
  kTaken,
  kFull,    // the client reads too slowly: nothing was taken, offer it again later
  kClosed,  // the client went away, or the answer was finished: stop
};

// One request and the answer to it. Owners: the connection, until the answer is written or the
// client is gone; and whoever makes the answer (a handler, a generation). All methods are safe from
// any thread and never block.
class Exchange {
 public:
  // Tells the connection's thread that there is something to write or that the answer ended. Any
  // thread.
  using Wake = std::function<void()>;

  Exchange(Request request, Wake wake, bool keep_alive, bool is_http10, size_t max_pending,
           std::string extra_headers);

  const Request& request() const { return request_; }
  // What the route's pattern matched; by the handler, before anybody reads the request.
  void set_path_params(std::vector<std::pair<std::string, std::string>> params) {
    request_.path_params = std::move(params);
  }
  // Moves the body out, once, for the one who parses it: a stream of hours must not keep its
  // request twice. By the handler, before it hands the exchange on.
  std::string take_body() { return std::move(request_.body); }
  // What this request is counted and logged as: set by the handler before it answers or hands on,
  // "" if nothing matched. The text outlives the exchange.
  void set_route(std::string_view route) { route_ = route; }
  std::string_view route() const { return route_; }

  // The whole answer at once. Later calls of any kind are ignored.
  void respond(Response response);

  // Begins a streamed answer with the head of `response` (its body is sent first). push() adds
  // bytes, finish() ends it.
  void start_stream(Response response);
  Push push(std::string_view bytes);
  // For writers that ask first and then must not lose what they made: has_room() is true while less
  // than half of the limit is pending; push_unbounded() takes the bytes whatever is pending.
  bool has_room() const;
  Push push_unbounded(std::string_view bytes);
  void finish();
  // Ends a streamed answer that cannot be completed: without the mark of its end, and with the
  // connection, so that the client sees that something is missing.
  void break_off();

  // Called once, from the connection's thread, if the client goes away before the answer is
  // finished; at once if it has. What the callback holds lives until the exchange is over.
  void on_closed(std::function<void()> callback);
  bool closed() const;

  // Status of the answer, 0 before it has begun; 499 if the client left first.
  int status() const;

  // The connection is through with this exchange: what on_closed() holds is let go, on this thread.
  void release();

  // For the connection (its thread only). take_output moves what is to be written into `out` and
  // says whether the answer ends there.
  bool take_output(std::string& out);
  void client_gone();
  // Milliseconds (steady) of the last byte handed to the connection; for keep-alive comments.
  int64_t last_output_ms() const;
  bool is_streaming() const;
  bool keep_alive() const;
  // Adds an SSE comment if the answer is an event stream that has nothing pending.
  void push_keep_alive_comment();

 private:
  Push push_up_to(std::string_view bytes, size_t max_pending);
  void append_head(const Response& response, bool streamed);  // mutex_ held
  void append_chunk(std::string_view bytes);                  // mutex_ held

  // Constant after construction, but for the body.
  Request request_;
  const Wake wake_;
  const bool http10_;
  const size_t max_pending_;
  const std::string extra_headers_;  // CORS and the like, each line ended by CRLF

  std::string_view route_;

  mutable std::mutex mutex_;  // guards what follows
  bool keep_alive_;
  std::string out_;
  int status_ = 0;
  bool streaming_ = false;
  bool event_stream_ = false;
  bool finished_ = false;
  bool closed_ = false;
  bool woken_ = false;
  bool released_ = false;
  int64_t last_output_ms_ = 0;
  std::function<void()> closed_callback_;
};

}  // namespace hadal::http
