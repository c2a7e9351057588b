#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hadal::serving {

// The server-sent events of a response (each with its sequence_number at its end, from 0), kept to
// be sent again to the byte. An event is kept as what differs from the one before it, without its
// number and without the text that its deltas have already given: a delta of a token costs some 5
// bytes and its text, in place of 200.
//
//   record = varint(place + 1 of the text of all deltas of this item, or 0: it is not inside)
//            varint(bytes shared with the beginning of the event before)
//            varint(bytes shared with its end) varint(n) n bytes
//
// What a record is relative to; the same for writer and reader. Pure.
class EventContext {
 public:
  void encode(std::string_view body, std::string& out) const;
  // The next event's body out of `bytes` from `at` on, which goes behind it. False: damaged.
  bool decode(std::string_view bytes, size_t& at, std::string& body) const;
  // After either.
  void follow(std::string_view body);

 private:
  std::string previous_;  // the body of the event before
  std::string said_;      // deltas since the last item began, as they are escaped
};

// Thread: its owner's.
class EventLog {
 public:
  // Whole events, as they are sent; comments are left out.
  void append(std::string_view events);
  uint64_t n_events() const { return n_events_; }
  const std::string& bytes() const { return bytes_; }

 private:
  EventContext context_;
  std::string bytes_;
  uint64_t n_events_ = 0;
};

// Goes through the bytes of a log, which may grow meanwhile.
class EventLogCursor {
 public:
  enum class Next : uint8_t { kEvent, kEnd, kDamaged };
  // Appends the next event to `out`, if its number is not below `from`.
  Next next(std::string_view bytes, uint64_t from, std::string& out);

 private:
  EventContext context_;
  std::string body_;
  size_t at_ = 0;
  uint64_t number_ = 0;
};

// An event with its number, as it is sent.
std::string with_number(std::string_view body, uint64_t number);

// A log as it is kept: its number of events stands before it.
std::string packed_log(const EventLog& log);
// False: damaged. `bytes` is a view into `packed`.
bool unpack_log(std::string_view packed, uint64_t& n_events, std::string_view& bytes);

}  // namespace hadal::serving
