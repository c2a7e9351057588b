#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "gateway/http/request_reader.h"
#include "gateway/http/server.h"
#include "gateway/http/socket_poll.h"
#include "gateway/http/transport.h"

namespace hadal::http {

class Connection;

// What the connections of a server share. Atomic counters; the rest is constant.
struct Shared {
  const ServerConfig& config;
  Handler& handler;
  std::atomic<size_t> n_connections{0};
  std::atomic<size_t> n_active{0};
  std::atomic<size_t> inflight_body_bytes{0};
  std::atomic<bool> draining{false};
  std::atomic<uint64_t> next_request{0};
  std::atomic<uint64_t> next_id{0};
  uint64_t id_salt = 0;             // random, so that ids of two runs differ
  std::string request_id_prefix{};  // "req-" and the salt

  uint64_t new_id() { return metrics::scattered_id(id_salt, next_id.fetch_add(1)); }
};

// One event loop on one thread and the connections that live on it. wake() may be called from any
// thread; everything else is for its own thread.
class IoThread {
 public:
  explicit IoThread(Shared& shared);

  boost::asio::io_context& context() { return context_; }
  SocketPoll& poll() { return poll_; }
  void run();
  void stop();

  void adopt(std::shared_ptr<Connection> connection);
  void forget(const std::shared_ptr<Connection>& connection);
  // Asks for connection->flush() soon; many wakes between two turns of the loop cost one post.
  void wake(std::weak_ptr<Connection> connection);
  void close_idle();  // posts
  void close_all();   // posts

 private:
  std::vector<std::shared_ptr<Connection>> all() const;
  void flush_woken();
  void sweep();

  Shared& shared_;
  boost::asio::io_context context_{1};
  boost::asio::steady_timer timer_{context_};
  SocketPoll poll_{context_, [this] { flush_woken(); }};
  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::mutex mutex_;  // guards woken_, posted_
  std::vector<std::weak_ptr<Connection>> woken_;
  bool posted_ = false;  // a turn of the loop that flushes them is asked for
  std::vector<std::weak_ptr<Connection>> flushing_;  // scratch of flush_woken
};

// Reads requests from one client, one at a time, and writes the answers. Invariant: a request is
// parsed only while no exchange is active, so pipelined bytes wait in `in_`, of bounded size.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::unique_ptr<Transport> transport, IoThread& io, Shared& shared, std::string peer,
             bool loopback);
  ~Connection();

  void start();
  void flush();                // writes what the exchange has; ends it when it is complete
  void sweep(int64_t now_ms);  // time-outs and keep-alive comments
  void close();
  bool idle() const { return exchange_ == nullptr && in_.empty() && !reader_.in_progress(); }

 private:
  void read();
  void process();
  void dispatch();
  void reject(int status, std::string_view message);
  void release_body_budget();
  void written(boost::system::error_code error);
  void finish_exchange();
  std::string cors_headers(const Request& request) const;
  void set_trace(Request& request);

  // Constant after construction.
  const std::unique_ptr<Transport> transport_;
  IoThread& io_;
  Shared& shared_;
  const std::string peer_;
  const bool loopback_;

  RequestReader reader_;
  std::string in_;   // bytes read and not parsed yet
  std::string out_;  // bytes being written
  std::shared_ptr<Exchange> exchange_;
  std::chrono::steady_clock::time_point exchange_began_{};
  size_t n_dropped_ = 0;    // bytes read after a rejection
  size_t body_budget_ = 0;  // of Shared::inflight_body_bytes held by this connection
  bool reading_ = false;
  bool writing_ = false;
  bool output_ends_ = false;  // out_ completes the answer
  bool close_after_write_ = false;
  bool processing_ = false;  // guards against recursion
  bool flushing_ = false;    // likewise
  bool closed_ = false;
  int64_t deadline_ms_ = 0;  // of the state below; 0: none
  int64_t body_began_ms_ = 0;
  int64_t write_deadline_ms_ = 0;  // while writing_
};

}  // namespace hadal::http
