#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "gateway/http/exchange.h"
#include "gateway/serving/event_log.h"

namespace hadal::serving {

class FeedSender;

// The events of one response for any number of readers, from the first on: who comes late or reads
// slowly gets all of them, and holds up neither the generation nor the others. Owners: who makes
// the events, and its readers. Memory: some 10 bytes and its text for a token. Thread-safe.
class EventFeed {
 public:
  explicit EventFeed(FeedSender& sender) : sender_(sender) {}
  // A stored one that has ended: a packed log ("": its events are lost) and the last event.
  EventFeed(FeedSender& sender, std::string packed, std::string_view last_object);

  void publish(std::string_view events);
  // The last event is the one of this Responses object; "": the response goes on elsewhere, readers
  // are broken off and may come again.
  void end(std::string_view object);
  std::string packed() const;

  // Of one that has ended: the number of its last event; nothing if its events are lost, for then
  // the last one goes to every reader with the number that this one expects.
  std::optional<uint64_t> last_number() const;

 private:
  friend class FeedSender;
  struct Cursor {
    EventLogCursor log = {};
    uint64_t from = 0;  // number of the first event that the reader wants
  };
  enum class State : uint8_t { kMore, kNothingYet, kDone, kBroken };
  // Appends some events to `out`.
  State read(Cursor& cursor, std::string& out) const;

  FeedSender& sender_;
  mutable std::mutex mutex_;  // guards what follows
  EventLog log_;
  std::string stored_;              // of one that has ended before, in place of log_
  std::string_view stored_events_;  // in stored_
  uint64_t n_stored_events_ = 0;
  bool ended_ = false, lost_ = false;
  std::string last_event_;  // without its number; "" after the end: broken off
};

// Sends feeds to their readers, each as fast as it reads: one thread for all of them.
class FeedSender {
 public:
  FeedSender();
  ~FeedSender();  // leaves what is under way
  // Begins the answer with the events from number `from` on. Does nothing if it has begun.
  void add(std::shared_ptr<EventFeed> feed, std::shared_ptr<http::Exchange> exchange,
           uint64_t from);
  void wake();

 private:
  struct Reader {
    std::shared_ptr<EventFeed> feed;
    std::shared_ptr<http::Exchange> exchange;
    EventFeed::Cursor cursor;
  };
  enum class Step : uint8_t { kMoved, kBlocked, kIdle, kEnded };
  void run(const std::stop_token& stop);
  Step advance(Reader& reader);

  std::string piece_;  // the thread's own
  std::atomic<uint32_t> n_readers_{0};
  std::mutex mutex_;  // guards arrived_, woken_
  std::condition_variable_any news_;
  std::list<Reader> arrived_;
  bool woken_ = false;
  std::jthread thread_;  // last: it uses what stands above
};

}  // namespace hadal::serving
