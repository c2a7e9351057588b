#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/core/result.h"
#include "main/sse_lines.h"

namespace hadal::main {

struct LoadPlan {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string api_key;        // "": none
  uint32_t n_streams = 5000;  // open at the same time
  uint32_t opens_per_second = 2500;
  std::chrono::milliseconds settle{1000};  // between the last first event and the window
  std::chrono::milliseconds window{10000};
  uint32_t pace_ms = 100;  // between two events of a stream
  uint32_t step = 1;       // tokens of an event
};

// What the clients of a run saw. Delays: from the engine's event to the end of the read that
// brought it, by one clock.
struct LoadReport {
  uint64_t n_events = 0;  // server-sent events with data, in the window
  uint64_t n_bytes = 0;   // read in the window
  double window_s = 0;
  std::vector<uint32_t> delays_us;  // sorted, one an engine's event in the window
  std::vector<uint32_t> first_us;   // sorted: from the request's write to its first event
  double client_cpu_s = 0;          // of this process, in the window
};

// Many streams of one process: plays scripts on a server with the script backend
// (docs/architecture.md 3.4) and asks for the engine's times. One thread.
class LoadClient {
 public:
  // Called when all streams are open, and again when the window ends, before they are closed.
  using AtEdge = std::function<void()>;

  explicit LoadClient(LoadPlan plan) : plan_(std::move(plan)) {}
  ~LoadClient();
  // kIo: the server could not be reached; kInternal: it refused or ended a stream, with its words.
  core::Result<LoadReport> run(const AtEdge& at_begin, const AtEdge& at_end);

 private:
  struct Stream {
    int fd = -1;
    size_t n_sent = 0;  // bytes of the request
    std::chrono::steady_clock::time_point sent_at;
    bool has_event = false;
    SseLines lines;
  };
  core::Status open_one(size_t index);
  core::Status write_request(Stream& stream);
  core::Status read_events(Stream& stream);
  void on_line(Stream& stream, std::string_view line, std::chrono::steady_clock::time_point now);
  std::string make_request() const;

  const LoadPlan plan_;
  std::string request_;
  int epoll_ = -1;
  std::vector<std::unique_ptr<Stream>> streams_;
  size_t n_begun_ = 0;  // streams with a first event
  bool counting_ = false;
  LoadReport report_;
};

}  // namespace hadal::main
