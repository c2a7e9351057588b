#include "gateway/serving/event_log.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/core/check.h"

namespace hadal::serving {
namespace {

constexpr std::string_view kItemBegins = "event: response.output_item.added";
constexpr std::string_view kDelta = R"(,"delta":")";
constexpr std::string_view kNumber = R"(,"sequence_number":)";
constexpr std::string_view kEnd = "}\n\n";
constexpr size_t kLeastSaid = 16;             // shorter ones are not worth a place
constexpr size_t kLongestEvent = 1ull << 30;  // of a log that is not damaged

void put(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

bool get(std::string_view bytes, size_t& at, uint64_t& value) {
  value = 0;
  for (int shift = 0; at < bytes.size() && shift < 63; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    value |= uint64_t{byte & 127u} << shift;
    if (byte < 128) return true;
  }
  return false;
}

// What stands in `"delta":"..."`, still escaped; "" if the event is no delta.
std::string_view delta_of(std::string_view body) {
  const size_t found = body.find(kDelta);
  if (found == std::string_view::npos) return {};
  const size_t begin = found + kDelta.size();
  size_t end = begin;
  while (end < body.size() && body[end] != '"') end += body[end] == '\\' ? 2 : 1;
  return body.substr(begin, std::min(end, body.size()) - begin);
}

}  // namespace

void EventContext::encode(std::string_view body, std::string& out) const {
  std::string rest;
  size_t place = std::string_view::npos;
  if (said_.size() >= kLeastSaid && delta_of(body).empty()) place = body.find(said_);
  if (place != std::string_view::npos) {
    rest.append(body.substr(0, place)).append(body.substr(place + said_.size()));
    body = rest;
  }
  put(out, place == std::string_view::npos ? 0 : place + 1);
  const size_t most = std::min(body.size(), previous_.size());
  size_t front = 0, back = 0;
  while (front < most && body[front] == previous_[front]) ++front;
  while (back < most - front &&
         body[body.size() - 1 - back] == previous_[previous_.size() - 1 - back]) {
    ++back;
  }
  put(out, front);
  put(out, back);
  put(out, body.size() - front - back);
  out.append(body.substr(front, body.size() - front - back));
}

bool EventContext::decode(std::string_view bytes, size_t& at, std::string& body) const {
  uint64_t place = 0, front = 0, back = 0, n = 0;
  if (!get(bytes, at, place) || !get(bytes, at, front) || !get(bytes, at, back) ||
      !get(bytes, at, n)) {
    return false;
  }
  if (front > previous_.size() || back > previous_.size() - front || n > bytes.size() - at)
    return false;
  if (front + back + n + said_.size() > kLongestEvent || place > front + back + n + 1) return false;
  body.assign(previous_, 0, front);
  body.append(bytes.substr(at, n));
  body.append(previous_, previous_.size() - back, back);
  if (place > 0) body.insert(place - 1, said_);
  at += n;
  return true;
}

void EventContext::follow(std::string_view body) {
  if (body.starts_with(kItemBegins)) said_.clear();
  said_.append(delta_of(body));
  previous_ = body;
}

void EventLog::append(std::string_view events) {
  while (!events.empty()) {
    if (events.front() == ':') {  // a comment: one line, and an empty one if it stands alone
      const size_t line = std::min(events.size() - 1, events.find('\n'));
      events.remove_prefix(line + 1);
      if (events.starts_with('\n')) events.remove_prefix(1);
      continue;
    }
    const size_t end = events.find("\n\n");
    const std::string tail = fmt::format("{}{}{}", kNumber, n_events_, kEnd);
    HADAL_CHECK(end != std::string_view::npos && events.substr(0, end + 2).ends_with(tail),
                fmt::format("event {} of a response has no end or another number", n_events_));
    const std::string_view body = events.substr(0, end + 2 - tail.size());
    context_.encode(body, bytes_);
    context_.follow(body);
    ++n_events_;
    events.remove_prefix(end + 2);
  }
}

EventLogCursor::Next EventLogCursor::next(std::string_view bytes, uint64_t from, std::string& out) {
  if (at_ >= bytes.size()) return Next::kEnd;
  if (!context_.decode(bytes, at_, body_)) return Next::kDamaged;
  context_.follow(body_);
  if (number_ >= from) {
    out += body_;
    fmt::format_to(std::back_inserter(out), "{}{}{}", kNumber, number_, kEnd);
  }
  ++number_;
  return Next::kEvent;
}

std::string with_number(std::string_view body, uint64_t number) {
  return fmt::format("{}{}{}{}", body, kNumber, number, kEnd);
}

std::string packed_log(const EventLog& log) {
  std::string out;
  put(out, log.n_events());
  return out += log.bytes();
}

bool unpack_log(std::string_view packed, uint64_t& n_events, std::string_view& bytes) {
  size_t at = 0;
  if (!get(packed, at, n_events)) return false;
  bytes = packed.substr(at);
  return true;
}

}  // namespace hadal::serving
