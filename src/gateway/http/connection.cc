#include "gateway/http/connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace hadal::http {
namespace {

using boost::system::error_code;

int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool well_formed_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

constexpr std::chrono::milliseconds kSweepInterval{250};
// Bytes of a next request that may wait while an answer is made.
constexpr size_t kMaxPipelined = 64 << 10;

}  // namespace

IoThread::IoThread(Shared& shared) : shared_(shared) {}

void IoThread::run() {
  const auto work = boost::asio::make_work_guard(context_);
  sweep();
  context_.run();
  for (const auto& connection : all()) connection->close();
}

void IoThread::stop() {
  context_.stop();
}

void IoThread::adopt(std::shared_ptr<Connection> connection) {
  connections_.insert(std::move(connection));
}
void IoThread::forget(const std::shared_ptr<Connection>& connection) {
  connections_.erase(connection);
}

void IoThread::wake(std::weak_ptr<Connection> connection) {
  {
    const std::lock_guard lock(mutex_);
    woken_.push_back(std::move(connection));
    if (std::exchange(posted_, true)) return;
  }
  boost::asio::post(context_, [this] {
    {
      const std::lock_guard lock(mutex_);
      posted_ = false;
    }
    flush_woken();
  });
}

void IoThread::flush_woken() {
  {
    const std::lock_guard lock(mutex_);
    flushing_.swap(woken_);
  }
  for (const std::weak_ptr<Connection>& woken : flushing_) {
    if (const auto connection = woken.lock()) connection->flush();
  }
  flushing_.clear();
}

// A copy: those that are closed leave the set.
std::vector<std::shared_ptr<Connection>> IoThread::all() const {
  return {connections_.begin(), connections_.end()};
}

void IoThread::close_idle() {
  boost::asio::post(context_, [this] {
    for (const auto& connection : all()) {
      if (connection->idle()) connection->close();
    }
  });
}

void IoThread::close_all() {
  boost::asio::post(context_, [this] {
    for (const auto& connection : all()) connection->close();
  });
}

void IoThread::sweep() {
  const int64_t now = steady_ms();
  for (const auto& connection : all()) connection->sweep(now);
  timer_.expires_after(kSweepInterval);
  timer_.async_wait([this](error_code error) {
    if (!error) sweep();
  });
}

Connection::Connection(std::unique_ptr<Transport> transport, IoThread& io, Shared& shared,
                       std::string peer, bool loopback)
    : transport_(std::move(transport)),
      io_(io),
      shared_(shared),
      peer_(std::move(peer)),
      loopback_(loopback),
      reader_(shared.config.max_header_bytes, shared.config.max_body_bytes) {
  shared_.n_connections.fetch_add(1);
}

Connection::~Connection() {
  release_body_budget();
  shared_.n_connections.fetch_sub(1);
}

void Connection::start() {
  deadline_ms_ = steady_ms() + shared_.config.header_timeout.count();
  transport_->handshake([self = shared_from_this()](error_code error) {
    if (error) {
      self->close();
    } else {
      self->deadline_ms_ = steady_ms() + self->shared_.config.idle_timeout.count();
      self->read();
    }
  });
}

void Connection::read() {
  if (reading_ || closed_ || in_.size() >= kMaxPipelined) return;
  reading_ = true;
  transport_->read([self = shared_from_this()](error_code error, std::string_view bytes) {
    self->reading_ = false;
    if (error || bytes.empty()) {
      self->close();
      return;
    }
    if (self->close_after_write_) {
      // Dropped: the answer is a rejection. Clients that send a whole body before they read get to
      // see it, but nobody sends for ever.
      self->n_dropped_ += bytes.size();
      if (self->n_dropped_ > self->shared_.config.max_body_bytes) {
        self->close();
      } else {
        self->read();
      }
      return;
    }
    self->in_.append(bytes);
    self->process();
    self->read();
  });
}

void Connection::process() {
  if (processing_)
    return;  // dispatch() may end the exchange and come back here: the loop below goes on
  processing_ = true;
  while (!closed_ && exchange_ == nullptr && !close_after_write_ && !in_.empty()) {
    const bool began = !reader_.in_progress();
    size_t n_used = 0;
    const auto state = reader_.feed(in_, n_used);
    in_.erase(0, n_used);
    const bool needs_more =
        state == RequestReader::State::kNeedMore;  // a rest in in_ is a head or chunk cut in two
    if (began && reader_.in_progress()) {
      deadline_ms_ = steady_ms() + shared_.config.header_timeout.count();
      body_began_ms_ = steady_ms();
    }
    if (reader_.head_done()) {
      deadline_ms_ = steady_ms() + shared_.config.body_timeout.count();
      // What is announced counts at once: many slow bodies must not add up to more than the limit.
      const size_t wanted = std::max<size_t>(reader_.body_length_hint(), reader_.body_bytes());
      if (state != RequestReader::State::kFailed && wanted > body_budget_) {
        const size_t added = wanted - body_budget_;
        if (shared_.inflight_body_bytes.fetch_add(added) + added >
            shared_.config.max_inflight_body_bytes) {
          shared_.inflight_body_bytes.fetch_sub(added);
          reject(503, "too many large requests are being read at this moment; try again later");
          break;
        }
        body_budget_ = wanted;
      }
    }
    if (state == RequestReader::State::kFailed) {
      reject(reader_.status(), reader_.message());
    } else if (state == RequestReader::State::kComplete) {
      dispatch();
    } else if (state == RequestReader::State::kHeadDone && reader_.expects_continue() &&
               in_.empty() && !writing_) {
      out_ = "HTTP/1.1 100 Continue\r\n\r\n";
      writing_ = true;
      write_deadline_ms_ = steady_ms() + shared_.config.write_timeout.count();
      transport_->write(out_, [self = shared_from_this()](error_code error) {
        self->writing_ = false;
        if (error) {
          self->close();
        } else {
          self->flush();
        }
      });
    }
    if (needs_more) break;
  }
  if (in_.empty() && in_.capacity() > 4096) in_ = std::string();
  processing_ = false;
}

void Connection::dispatch() {
  const bool keep_alive = reader_.keep_alive() && !shared_.draining.load();
  const bool http10 = reader_.is_http10();
  Request request = reader_.take();
  request.peer = peer_;
  request.peer_is_loopback = loopback_;
  const std::string_view given = request.header("x-request-id");
  if (well_formed_id(given)) {
    request.request_id = given;
  } else {
    request.request_id.reserve(shared_.request_id_prefix.size() + 8);
    request.request_id = shared_.request_id_prefix;
    append_hex(request.request_id, shared_.next_request.fetch_add(1), 8);
  }
  std::string extra = cors_headers(request);
  set_trace(request);
  if (request.trace)
    extra.append("traceparent: ").append(traceparent(*request.trace)).append("\r\n");
  deadline_ms_ = 0;
  exchange_began_ = std::chrono::steady_clock::now();
  shared_.n_active.fetch_add(1);
  exchange_ = std::make_shared<Exchange>(
      std::move(request), [&io = io_, weak = weak_from_this()] { io.wake(weak); }, keep_alive,
      http10, shared_.config.max_pending_bytes, std::move(extra));
  shared_.handler.handle(exchange_);
  flush();  // an answer given at once leaves without another turn of the loop
}

void Connection::set_trace(Request& request) {
  request.trace = metrics::parse_traceparent(request.header("traceparent"));
  if (request.trace) {
    request.trace_parent = request.trace->span;
  } else if (shared_.config.new_traces) {
    const uint64_t high = shared_.new_id();
    request.trace = metrics::TraceContext{
        .trace_high = high,
        .trace_low = shared_.new_id(),
        .span = 0,
        .sampled = high % 100 < shared_.config.trace_percent,
    };
  }
  if (request.trace) request.trace->span = shared_.new_id();
}

std::string Connection::cors_headers(const Request& request) const {
  const std::string_view origin = request.header("origin");
  if (shared_.config.cors_origins.empty() || origin.empty()) return {};
  for (const std::string& allowed : shared_.config.cors_origins) {
    if (allowed != "*" && allowed != origin) continue;
    return fmt::format(
        "Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n"
        "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\n"
        "Access-Control-Allow-Headers: authorization, content-type, x-api-key, x-request-id, "
        "anthropic-version, anthropic-beta, "
        "traceparent, tracestate\r\nAccess-Control-Expose-Headers: x-request-id, "
        "traceparent, retry-after\r\nAccess-Control-Max-Age: 600\r\n",
        allowed == "*" ? std::string_view("*") : origin);
  }
  return {};
}

void Connection::reject(int status, std::string_view message) {
  Response response = shared_.handler.error_response(status, reader_.path(), message);
  if (status == 503) response.headers.push_back({"Retry-After", "1"});
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n", status,
      status_text(status), response.content_type, response.body.size());
  for (const Header& header : response.headers)
    text += fmt::format("{}: {}\r\n", header.name, header.value);
  text += "\r\n" + response.body;
  close_after_write_ = true;
  in_ = std::string();
  if (writing_) {  // only an interim 100 can be on its way: it is 25 bytes, the client sees the end
                   // of the connection
    close();
    return;
  }
  out_ = std::move(text);
  writing_ = true;
  write_deadline_ms_ = steady_ms() + shared_.config.header_timeout.count();
  transport_->write(out_, [self = shared_from_this()](error_code error) {
    self->writing_ = false;
    if (error) {
      self->close();
      return;
    }
    // Lingering a moment lets the client read the answer before a reset for its unread bytes
    // reaches it.
    self->deadline_ms_ = steady_ms() + 1000;
  });
}

void Connection::flush() {
  if (flushing_) return;
  flushing_ = true;
  // The plain transport completes most writes inside the call: then the loop goes on, without
  // recursion.
  while (!closed_ && !writing_ && exchange_ != nullptr) {
    const bool ends = exchange_->take_output(out_);
    if (!out_.empty()) {
      writing_ = true;
      output_ends_ = ends;
      write_deadline_ms_ = steady_ms() + shared_.config.write_timeout.count();
      transport_->write(out_,
                        [self = shared_from_this()](error_code error) { self->written(error); });
    } else if (ends) {
      finish_exchange();
    } else {
      break;
    }
  }
  flushing_ = false;
}

void Connection::written(error_code error) {
  writing_ = false;
  if (out_.capacity() > 4096)
    out_ = std::string();  // thousands of quiet streams must not keep their largest burst
  if (error) {
    close();
    return;
  }
  if (output_ends_) {
    output_ends_ = false;
    finish_exchange();
  } else {
    flush();
  }
}

void Connection::finish_exchange() {
  const std::shared_ptr<Exchange> done = std::move(exchange_);
  exchange_ = nullptr;
  release_body_budget();
  shared_.n_active.fetch_sub(1);
  shared_.handler.on_done(*done, std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::steady_clock::now() - exchange_began_));
  done->release();
  if (!done->keep_alive() || shared_.draining.load()) {
    close();
    return;
  }
  deadline_ms_ = steady_ms() + shared_.config.idle_timeout.count();
  process();
  read();
}

void Connection::release_body_budget() {
  if (body_budget_ > 0) shared_.inflight_body_bytes.fetch_sub(body_budget_);
  body_budget_ = 0;
}

void Connection::sweep(int64_t now_ms) {
  if (writing_ && now_ms > write_deadline_ms_) {
    close();
    return;
  }
  if (exchange_ != nullptr) {
    if (exchange_->is_streaming() &&
        now_ms - exchange_->last_output_ms() >= shared_.config.keep_alive_comment.count()) {
      exchange_->push_keep_alive_comment();
    }
    return;
  }
  // A body may be slow, but not slower than 1 KiB/s on average: a byte now and then must not hold a
  // connection for ever.
  const bool crawls =
      reader_.head_done() && now_ms > body_began_ms_ + shared_.config.body_timeout.count() +
                                          static_cast<int64_t>(reader_.body_bytes() * 1000 / 1024);
  if ((deadline_ms_ == 0 || now_ms <= deadline_ms_) && !crawls) return;
  if (reader_.in_progress() && !close_after_write_) {
    reject(408, "the rest of the request did not arrive in time");
  } else {
    close();
  }
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  transport_->close();
  if (exchange_ != nullptr) {
    const std::shared_ptr<Exchange> left = std::move(exchange_);
    exchange_ = nullptr;
    shared_.n_active.fetch_sub(1);
    left->client_gone();
    shared_.handler.on_done(*left, std::chrono::duration_cast<std::chrono::microseconds>(
                                       std::chrono::steady_clock::now() - exchange_began_));
  }
  release_body_budget();
  io_.forget(self);
}

}  // namespace hadal::http
