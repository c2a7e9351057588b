#include "gateway/admin/otlp.h"

#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/admin/span_exporter.h"

namespace hadal::admin {
namespace {

using nlohmann::json;

metrics::Span some_span() {
  metrics::Span span;
  span.context = {1, 2, 3, true};
  span.parent = 4;
  span.name = "work";
  span.begin = std::chrono::system_clock::time_point(std::chrono::seconds(1));
  span.end = span.begin + std::chrono::milliseconds(5);
  span.attributes = {{"a", "text"}, {"b", int64_t{7}}};
  return span;
}

// Takes `n_posts` requests, one after another, and answers each with `status`.
class Collector {
 public:
  Collector(int n_posts, int status) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(fd_, 16);
    socklen_t size = sizeof address;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = {"127.0.0.1", std::to_string(ntohs(address.sin_port)), "/v1/traces"};
    thread_ = std::thread([this, n_posts, status] {
      for (int i = 0; i < n_posts; ++i) serve_one(status);
    });
  }
  ~Collector() {
    thread_.join();
    close(fd_);
  }
  const OtlpEndpoint& endpoint() const { return endpoint_; }
  int n_spans() const { return n_spans_; }  // after the posts

 private:
  void serve_one(int status) {
    const int client = accept(fd_, nullptr, nullptr);
    std::string text;
    char buffer[4096];
    while (true) {
      const size_t head = text.find("\r\n\r\n");
      if (head != std::string::npos &&
          text.size() >= head + 4 + std::stoul(text.substr(text.find("Content-Length: ") + 16)))
        break;
      const ssize_t n = recv(client, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    const json body = json::parse(text.substr(text.find("\r\n\r\n") + 4), nullptr, false);
    if (body.is_object())
      n_spans_ += static_cast<int>(body["resourceSpans"][0]["scopeSpans"][0]["spans"].size());
    const std::string answer =
        "HTTP/1.1 " + std::to_string(status) + " x\r\nContent-Length: 2\r\n\r\n{}";
    send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
    close(client);
  }
  int fd_ = -1;
  std::atomic<int> n_spans_{0};
  OtlpEndpoint endpoint_;
  std::thread thread_;
};

TEST(Otlp, ASpanIsWrittenAsTheProtocolSays) {
  const metrics::Span span = some_span();
  const json body = json::parse(otlp_json({&span, 1}, "1.2"));
  const json& written = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(written["traceId"], "00000000000000010000000000000002");
  EXPECT_EQ(written["spanId"], "0000000000000003");
  EXPECT_EQ(written["parentSpanId"], "0000000000000004");
  EXPECT_EQ(written["startTimeUnixNano"], "1000000000");
  EXPECT_EQ(written["endTimeUnixNano"], "1005000000");
  EXPECT_EQ(written["attributes"][0]["value"]["stringValue"], "text");
  EXPECT_EQ(written["attributes"][1]["value"]["intValue"], "7");
}

TEST(Otlp, EndpointsHaveTheUsualPortAndPath) {
  const auto plain = parse_otlp_endpoint("http://collector");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host + "|" + plain->port + "|" + plain->path, "collector|4318|/v1/traces");
  const auto six = parse_otlp_endpoint("http://[::1]:99/x");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->host + "|" + six->port + "|" + six->path, "::1|99|/x");
  for (const char* bad :
       {"", "collector:4318", "https://a", "http://", "http://a:b", "http://a:1 2"})
    EXPECT_FALSE(parse_otlp_endpoint(bad)) << bad;
}

TEST(SpanExporter, SendsWhatItWasOfferedBeforeItEnds) {
  metrics::Registry registry;
  Collector collector(1, 200);
  {
    SpanExporter exporter({.endpoint = collector.endpoint(), .version = "1"}, registry);
    for (int i = 0; i < 10; ++i) exporter.offer(some_span());
  }
  EXPECT_EQ(registry.counter("hadal_spans_exported_total", "").value(), 10u);
  EXPECT_EQ(collector.n_spans(), 10);
}

TEST(SpanExporter, ACollectorThatIsAwayCostsSpansAndNothingElse) {
  metrics::Registry registry;
  {
    SpanExporter exporter({.endpoint = {"127.0.0.1", "1", "/"},
                           .version = "1",
                           .max_queued = 4,
                           .interval = std::chrono::minutes(1)},
                          registry);
    for (int i = 0; i < 10; ++i) exporter.offer(some_span());
  }
  const auto dropped = [&](const char* reason) {
    return registry.counter("hadal_spans_dropped_total", "", {{"reason", reason}}).value();
  };
  EXPECT_EQ(dropped("queue_full"), 6u);
  EXPECT_EQ(dropped("not_sent"), 4u);
}

TEST(SpanExporter, ARefusalCountsAsNotSent) {
  metrics::Registry registry;
  Collector collector(1, 500);
  {
    SpanExporter exporter({.endpoint = collector.endpoint(), .version = "1"}, registry);
    exporter.offer(some_span());
  }
  EXPECT_EQ(registry.counter("hadal_spans_exported_total", "").value(), 0u);
  EXPECT_EQ(registry.counter("hadal_spans_dropped_total", "", {{"reason", "not_sent"}}).value(),
            1u);
}

}  // namespace
}  // namespace hadal::admin
