#include "gateway/serving/event_feed.h"

#include <chrono>
#include <utility>

#include "base/core/log.h"
#include "gateway/openai/stored_items.h"

namespace hadal::serving {
namespace {

// Of one reader before the next one's turn, in bytes and in events: what is published waits for
// one turn at most.
constexpr size_t kPiece = 16 << 10;
constexpr int kEventsAtOnce = 512;
constexpr auto kLookAround = std::chrono::milliseconds(5);
// Readers that left are noticed at least so often.
constexpr auto kLookForLeavers = std::chrono::seconds(1);

}  // namespace

EventFeed::EventFeed(FeedSender& sender, std::string packed, std::string_view last_object)
    : sender_(sender),
      stored_(std::move(packed)),
      ended_(true),
      lost_(stored_.empty()),
      last_event_(openai::last_event(last_object)) {
  if (!lost_ && !unpack_log(stored_, n_stored_events_, stored_events_)) lost_ = true;
}

void EventFeed::publish(std::string_view events) {
  {
    const std::lock_guard lock(mutex_);
    log_.append(events);
  }
  sender_.wake();
}

void EventFeed::end(std::string_view object) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    if (!object.empty()) last_event_ = openai::last_event(object);
  }
  sender_.wake();
}

std::string EventFeed::packed() const {
  const std::lock_guard lock(mutex_);
  return packed_log(log_);
}

std::optional<uint64_t> EventFeed::last_number() const {
  const std::lock_guard lock(mutex_);
  if (lost_) return std::nullopt;
  return stored_.empty() ? log_.n_events() : n_stored_events_;
}

EventFeed::State EventFeed::read(Cursor& cursor, std::string& out) const {
  const std::lock_guard lock(mutex_);
  const std::string_view bytes = stored_.empty() ? std::string_view(log_.bytes()) : stored_events_;
  for (int n = 0; n < kEventsAtOnce && out.size() < kPiece; ++n) {
    const auto next = cursor.log.next(bytes, cursor.from, out);
    if (next == EventLogCursor::Next::kDamaged) {
      HADAL_LOG(kError, "store", "the events of a stored response are damaged");
      return State::kBroken;
    }
    if (next == EventLogCursor::Next::kEvent) continue;
    if (!ended_) return State::kNothingYet;
    if (last_event_.empty()) return State::kBroken;
    const uint64_t number =
        lost_ ? cursor.from : (stored_.empty() ? log_.n_events() : n_stored_events_);
    if (number + 1 != cursor.from) out += with_number(last_event_, number);
    return State::kDone;
  }
  return State::kMore;
}

FeedSender::FeedSender() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

FeedSender::~FeedSender() {
  thread_.request_stop();
  thread_.join();
}

void FeedSender::add(std::shared_ptr<EventFeed> feed, std::shared_ptr<http::Exchange> exchange,
                     uint64_t from) {
  exchange->start_stream(
      {200, "text/event-stream; charset=utf-8", {{"X-Accel-Buffering", "no"}}, ""});
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back({std::move(feed), std::move(exchange), {.log = {}, .from = from}});
  }
  ++n_readers_;
  wake();
}

void FeedSender::wake() {
  if (n_readers_ == 0) return;  // whoever comes finds what is there
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(woken_, true)) return;
  }
  news_.notify_one();
}

void FeedSender::run(const std::stop_token& stop) {
  std::list<Reader> readers;
  bool blocked = false, moved = false;
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      if (readers.empty() && !moved) {
        news_.wait(lock, stop, [&] { return woken_; });
      } else if (!moved) {
        news_.wait_for(lock, stop, blocked ? kLookAround : kLookForLeavers, [&] { return woken_; });
      }
      woken_ = false;
      readers.splice(readers.end(), arrived_);
    }
    blocked = moved = false;
    for (auto at = readers.begin(); at != readers.end();) {
      const Step step = advance(*at);
      moved = moved || step == Step::kMoved;
      blocked = blocked || step == Step::kBlocked;
      if (step == Step::kEnded) --n_readers_;
      at = step == Step::kEnded ? readers.erase(at) : std::next(at);
    }
  }
}

FeedSender::Step FeedSender::advance(Reader& reader) {
  if (reader.exchange->closed()) return Step::kEnded;
  if (!reader.exchange->has_room()) return Step::kBlocked;
  piece_.clear();
  const EventFeed::State state = reader.feed->read(reader.cursor, piece_);
  if (!piece_.empty() && reader.exchange->push_unbounded(piece_) == http::Push::kClosed)
    return Step::kEnded;
  switch (state) {
    case EventFeed::State::kMore:
      return Step::kMoved;
    case EventFeed::State::kNothingYet:
      return Step::kIdle;
    case EventFeed::State::kDone:
      reader.exchange->finish();
      return Step::kEnded;
    case EventFeed::State::kBroken:
      reader.exchange->break_off();
      return Step::kEnded;
  }
  return Step::kEnded;
}

}  // namespace hadal::serving
