#include "gateway/serving/event_log.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "gateway/openai/stored_items.h"

namespace hadal::serving {
namespace {

std::string event(uint64_t number, std::string_view type, std::string_view rest) {
  return "event: " + std::string(type) + "\ndata: {\"type\":\"" + std::string(type) + "\"" +
         std::string(rest) + ",\"sequence_number\":" + std::to_string(number) + "}\n\n";
}

// A stream of one item whose text comes in `deltas`, as the writer cuts it.
std::vector<std::string> stream_of(const std::vector<std::string>& deltas) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view type, const std::string& rest) {
    out.push_back(event(out.size(), type, rest));
  };
  std::string text;
  add("response.created", R"(,"response":{"id":"r","output":[]})");
  add("response.output_item.added", R"(,"item":{"id":"msg_0","content":[]},"output_index":0)");
  for (const std::string& delta : deltas) {
    text += delta;
    add("response.output_text.delta",
        R"(,"content_index":0,"item_id":"msg_0","output_index":0,"delta":")" + delta +
            R"(","logprobs":[])");
  }
  add("response.output_text.done", R"(,"content_index":0,"text":")" + text + "\"");
  add("response.output_item.done",
      R"(,"item":{"id":"msg_0","content":[{"text":")" + text + R"("}]},"output_index":0)");
  return out;
}

EventLog log_of(const std::vector<std::string>& events) {
  EventLog log;
  for (const std::string& one : events) log.append(one);
  return log;
}

std::string read_from(const EventLog& log, uint64_t from) {
  EventLogCursor cursor;
  std::string out;
  while (cursor.next(log.bytes(), from, out) == EventLogCursor::Next::kEvent) continue;
  return out;
}

TEST(EventLog, GivesEveryEventAgainToTheByte) {
  std::mt19937 random(7);
  const std::vector<std::string> words = {
      "a", " tide", "\\n", "\\\"", "\\u0000", "\xF0\x9F\x8C\x8A", "\\", ",", "\\\\", "x\\\\\\\"y"};
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> deltas(random() % 40);
    for (std::string& delta : deltas) {
      for (uint64_t n = 1 + random() % 3; n > 0; --n) delta += words[random() % words.size()];
      if (delta.ends_with('\\')) delta += '\\';
    }
    const auto events = stream_of(deltas);
    const EventLog log = log_of(events);
    ASSERT_EQ(log.n_events(), events.size());
    for (size_t from = 0; from <= events.size(); ++from) {
      std::string wanted;
      for (size_t i = from; i < events.size(); ++i) wanted += events[i];
      ASSERT_EQ(read_from(log, from), wanted) << from;
    }
  }
}

TEST(EventLog, ManyEventsAtOnceAndCommentsReadTheSame) {
  const auto events = stream_of({"one", " two", " three"});
  std::string all = ": keep-alive\n\n";
  for (const std::string& one : events) all += ": t=123\n" + one;
  EventLog log;
  log.append(all);
  EXPECT_EQ(log.bytes(), log_of(events).bytes());
}

TEST(EventLog, ATokenCostsItsTextAndAFewBytes) {
  std::vector<std::string> deltas;
  size_t text = 0;
  for (int i = 0; i < 10'000; ++i) {
    deltas.push_back(" w" + std::to_string(i * 7919 % 1000));
    text += deltas.back().size();
  }
  EXPECT_LT(log_of(stream_of(deltas)).bytes().size(), text + 6 * 10'000 + 1000);
}

TEST(EventLog, ACursorFollowsALogThatGrows) {
  const auto events = stream_of({"a", "b", "c"});
  EventLog log;
  EventLogCursor cursor;
  for (const std::string& one : events) {
    std::string out;
    EXPECT_EQ(cursor.next(log.bytes(), 0, out), EventLogCursor::Next::kEnd);
    log.append(one);
    EXPECT_EQ(cursor.next(log.bytes(), 0, out), EventLogCursor::Next::kEvent);
    EXPECT_EQ(out, one);
  }
}

TEST(EventLog, DamageIsSeenOrHarmless) {
  const EventLog log = log_of(stream_of({"some words that", " are long enough", " to be said"}));
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = log.bytes();
    if (round % 2 == 0) bytes.resize(random() % bytes.size());
    if (!bytes.empty()) bytes[random() % bytes.size()] = static_cast<char>(random());
    EventLogCursor cursor;
    std::string out;
    while (cursor.next(bytes, 0, out) == EventLogCursor::Next::kEvent)
      ASSERT_LT(out.size(), 1u << 20);
  }
}

TEST(EventLog, PacksAndUnpacks) {
  const auto events = stream_of({"x"});
  const std::string packed = packed_log(log_of(events));
  uint64_t n = 0;
  std::string_view bytes;
  ASSERT_TRUE(unpack_log(packed, n, bytes));
  EXPECT_EQ(n, events.size());
  EventLogCursor cursor;
  std::string out;
  EXPECT_EQ(cursor.next(bytes, 0, out), EventLogCursor::Next::kEvent);
  EXPECT_FALSE(unpack_log("", n, bytes));
}

TEST(LastEvent, FollowsFromTheStatus) {
  EXPECT_EQ(with_number(openai::last_event(R"({"status":"completed"})"), 5),
            "event: response.completed\ndata: "
            "{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"},"
            "\"sequence_number\":5}\n\n");
  EXPECT_TRUE(openai::last_event(R"({"status":"incomplete"})").starts_with("event: response.inc"));
  EXPECT_TRUE(openai::last_event(R"({"status":"cancelled"})").starts_with("event: response.fail"));
  EXPECT_TRUE(openai::last_event(R"({"status":"failed"})").starts_with("event: response.failed"));
}

}  // namespace
}  // namespace hadal::serving
