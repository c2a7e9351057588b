#include "gateway/serving/event_feed.h"

#include <gtest/gtest.h>

namespace hadal::serving {
namespace {

std::string event(int number, const std::string& delta) {
  return "event: response.output_text.delta\ndata: "
         "{\"type\":\"response.output_text.delta\",\"delta\":\"" +
         delta + "\",\"sequence_number\":" + std::to_string(number) + "}\n\n";
}
constexpr const char* kObject = R"({"status":"completed"})";

// A client of HTTP/1.0, so that what it is sent is the body itself.
class Client {
 public:
  explicit Client(size_t max_pending = 1 << 20)
      : exchange(std::make_shared<http::Exchange>(
            http::Request{}, [] {}, true, true, max_pending, "")) {}
  // Takes what is there until the answer has ended or `enough` holds.
  template <typename Enough>
  bool read_until(Enough enough) {
    for (int i = 0; i < 100'000; ++i) {
      std::string out;
      const bool last = exchange->take_output(out);
      text += out;
      if (last || enough()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::string body() const {
    const size_t head = text.find("\r\n\r\n");
    return head == std::string::npos ? std::string() : text.substr(head + 4);
  }
  std::shared_ptr<http::Exchange> exchange;
  std::string text;
};
const auto kToTheEnd = [] { return false; };

TEST(EventFeed, ALateReaderGetsAllAndThenWhatComes) {
  FeedSender sender;
  const auto feed = std::make_shared<EventFeed>(sender);
  std::string all;
  Client early, late, later;
  sender.add(feed, early.exchange, 0);
  for (int i = 0; i < 50; ++i) {
    all += event(i, "a" + std::to_string(i));
    feed->publish(event(i, "a" + std::to_string(i)));
    if (i == 20) sender.add(feed, late.exchange, 0);
  }
  sender.add(feed, later.exchange, 30);
  EXPECT_TRUE(early.read_until([&] { return early.body() == all; }));
  feed->end(kObject);
  const std::string last =
      "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":" +
      std::string(kObject) + ",\"sequence_number\":50}\n\n";
  for (Client* client : {&early, &late, &later}) ASSERT_TRUE(client->read_until(kToTheEnd));
  EXPECT_EQ(early.body(), all + last);
  EXPECT_EQ(late.body(), all + last);
  EXPECT_EQ(later.body(), all.substr(all.find(event(30, "a30"))) + last);
}

TEST(EventFeed, AReaderThatDoesNotReadHoldsUpNobodyAndLosesNothing) {
  FeedSender sender;
  const auto feed = std::make_shared<EventFeed>(sender);
  Client stuck(4096), good;
  sender.add(feed, stuck.exchange, 0);
  sender.add(feed, good.exchange, 0);
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    all += event(i, "b");
    feed->publish(event(i, "b"));
  }
  feed->end(kObject);
  ASSERT_TRUE(good.read_until(kToTheEnd));
  EXPECT_TRUE(good.body().starts_with(all));
  ASSERT_TRUE(stuck.read_until(kToTheEnd));
  EXPECT_EQ(stuck.body(), good.body());
}

TEST(EventFeed, WhatGoesOnElsewhereHasNoLastEvent) {
  FeedSender sender;
  const auto feed = std::make_shared<EventFeed>(sender);
  Client client;
  sender.add(feed, client.exchange, 0);
  feed->publish(event(0, "c"));
  feed->end({});
  ASSERT_TRUE(client.read_until(kToTheEnd));
  EXPECT_EQ(client.body(), event(0, "c"));
  EXPECT_FALSE(client.exchange->keep_alive()) << "the connection says that something is missing";
}

TEST(EventFeed, AStoredOneKnowsItsLastNumber) {
  FeedSender sender;
  EventLog log;
  for (int i = 0; i < 3; ++i) log.append(event(i, "d"));
  const auto feed = std::make_shared<EventFeed>(sender, packed_log(log), kObject);
  EXPECT_EQ(feed->last_number(), 3u);
  for (uint64_t from = 0; from <= 4; ++from) {
    Client client;
    sender.add(feed, client.exchange, from);
    ASSERT_TRUE(client.read_until(kToTheEnd));
    EXPECT_EQ(client.body().find("\"sequence_number\":3}") != std::string::npos, from < 4) << from;
    EXPECT_EQ(client.body().find("\"sequence_number\":2}") != std::string::npos, from < 3) << from;
  }
}

TEST(EventFeed, LostEventsLeaveTheLastOneWithTheNumberThatIsWaitedFor) {
  FeedSender sender;
  const auto feed = std::make_shared<EventFeed>(sender, "", R"({"status":"failed"})");
  EXPECT_FALSE(feed->last_number().has_value());
  Client client;
  sender.add(feed, client.exchange, 17);
  ASSERT_TRUE(client.read_until(kToTheEnd));
  EXPECT_TRUE(client.body().starts_with("event: response.failed"));
  EXPECT_TRUE(client.body().ends_with("\"sequence_number\":17}\n\n"));
}

}  // namespace
}  // namespace hadal::serving
