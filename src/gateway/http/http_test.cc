#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/http/api_keys.h"
#include "gateway/http/router.h"
#include "gateway/http/server.h"

namespace hadal::http {
namespace {

using namespace std::chrono_literals;

// Echoes, streams, or keeps the exchange for the test.
class TestHandler : public Handler {
 public:
  void handle(std::shared_ptr<Exchange> exchange) override {
    const std::string& path = exchange->request().path;
    if (path == "/echo") {
      exchange->respond({200, "text/plain", {}, exchange->request().body});
    } else if (path == "/stream") {
      exchange->start_stream({200, "text/event-stream", {}, ""});
      for (int i = 0; i < 3; ++i) exchange->push("data: " + std::to_string(i) + "\n\n");
      exchange->finish();
    } else {
      const std::lock_guard lock(mutex);
      kept = std::move(exchange);
      changed.notify_all();
    }
  }
  Response error_response(int status, std::string_view, std::string_view message) override {
    return {status, "text/plain", {}, std::string(message)};
  }
  void on_done(const Exchange& exchange, std::chrono::microseconds) override {
    last_status = exchange.status();
    ++n_done;
  }
  std::shared_ptr<Exchange> wait_kept() {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, 120s, [&] { return kept != nullptr; });
    return std::move(kept);
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<Exchange> kept;
  std::atomic<int> n_done{0};
  std::atomic<int> last_status{0};
};

class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timeval timeout{120, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }
  ~Client() { hang_up(); }
  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void send_text(std::string_view text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Reads until `end` occurs, or the connection ends.
  std::string read_until(std::string_view end) {
    char buffer[4096];
    while (text_.find(end) == std::string::npos) {
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      text_.append(buffer, static_cast<size_t>(n));
    }
    const size_t at = text_.find(end);
    const size_t taken = at == std::string::npos ? text_.size() : at + end.size();
    const std::string out = text_.substr(0, taken);
    text_.erase(0, taken);
    return out;
  }
  std::string read_all() { return read_until("\xff never \xff"); }

 private:
  int fd_;
  std::string text_;
};

struct Running {
  explicit Running(ServerConfig config = {}) {
    config.port = 0;
    auto made = Server::listen(config, handler);
    EXPECT_TRUE(made.has_value());
    server = std::move(made).value();
    server->start();
  }
  template <typename Condition>
  bool eventually(Condition condition) {
    for (int i = 0; i < 12'000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  TestHandler handler;
  std::unique_ptr<Server> server;
};

TEST(HttpServer, AnswersPipelinedRequestsInOrderOnOneConnection) {
  Running running;
  Client client(running.server->port());
  client.send_text(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\noneGET /stream HTTP/1.1\r\nHost: "
      "x\r\n\r\n"
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n");
  const std::string first = client.read_until("one");
  EXPECT_TRUE(first.starts_with("HTTP/1.1 200 OK\r\n")) << first;
  EXPECT_NE(first.find("Content-Length: 3"), std::string::npos);
  const std::string second = client.read_until("0\r\n\r\n");
  EXPECT_NE(second.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_NE(second.find("9\r\ndata: 2\n\n\r\n"), std::string::npos) << second;
  EXPECT_NE(client.read_until("two").find("200 OK"), std::string::npos);
  EXPECT_TRUE(running.eventually([&] { return running.handler.n_done == 3; }));
}

// More than the server reads ahead, so that it stops reading and must begin again by itself: the
// client sends nothing more that would tell it.
TEST(HttpServer, WhatWaitsBehindAnAnswerInTheMakingIsReadLater) {
  constexpr int kWaiting = 40;
  Running running;
  Client client(running.server->port());
  client.send_text("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::shared_ptr<Exchange> first = running.handler.wait_kept();
  ASSERT_NE(first, nullptr);
  const std::string body(15'000, 'b');
  std::string waiting;
  for (int i = 0; i < kWaiting; ++i) {
    waiting += "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 15005\r\n\r\n" + body + "<" +
               std::to_string(100 + i) + ">";
  }
  std::thread sender([&] { client.send_text(waiting); });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(running.handler.n_done, 0);
  first->respond({200, "text/plain", {}, "first"});
  client.read_until("first");
  for (int i = 0; i < kWaiting; ++i) {
    const std::string end = "<" + std::to_string(100 + i) + ">";
    EXPECT_TRUE(client.read_until(end).ends_with(end)) << i;
  }
  sender.join();
  EXPECT_TRUE(running.eventually([&] { return running.handler.n_done == kWaiting + 1; }));
}

TEST(HttpServer, AcceptsRequestsCutAnywhere) {
  Running running;
  Client client(running.server->port());
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
  for (const char c : request) {
    client.send_text(std::string_view(&c, 1));
    std::this_thread::sleep_for(200us);
  }
  EXPECT_TRUE(client.read_all().ends_with("\r\n\r\nhello"));
}

TEST(HttpServer, FieldsBehindABodyAreNoHeaders) {
  Running running;
  Client client(running.server->port());
  client.send_text(
      "POST /keep HTTP/1.1\r\nHost: x\r\nX-Twice: a\r\nX-TWICE: b\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\none\r\n0\r\nAuthorization: Bearer k\r\nX-Twice: c\r\n\r\n");
  const auto exchange = running.handler.wait_kept();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(exchange->request().body, "one");
  EXPECT_EQ(exchange->request().header("x-twice"), "a");
  EXPECT_EQ(exchange->request().header("authorization"), "");
  EXPECT_EQ(exchange->request().headers.size(), 4u);
  exchange->respond({200, "text/plain", {}, ""});
}

TEST(HttpServer, TellsTheHandlerWhenAClientLeaves) {
  Running running;
  Client client(running.server->port());
  client.send_text("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_kept();
  ASSERT_NE(exchange, nullptr);
  std::atomic<bool> gone{false};
  exchange->on_closed([&] { gone = true; });
  exchange->start_stream({200, "text/event-stream", {}, ""});
  client.read_until("\r\n\r\n");
  client.hang_up();
  EXPECT_TRUE(running.eventually([&] { return gone.load(); }));
  EXPECT_EQ(exchange->push("data: x\n\n"), Push::kClosed);
  EXPECT_TRUE(running.eventually(
      [&] { return running.server->n_connections() == 0 && running.server->n_active() == 0; }));
  EXPECT_TRUE(running.eventually([&] { return running.handler.last_status == 499; }));
}

TEST(HttpServer, ASlowReaderFillsOnlyItsOwnBoundedBuffer) {
  ServerConfig config;
  config.max_pending_bytes = 1000;
  Running running(config);
  Client client(running.server->port());
  client.send_text("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_kept();
  exchange->start_stream({200, "text/event-stream", {}, ""});
  const std::string frame(500, 'x');
  size_t n_taken = 0;
  Push push = Push::kTaken;
  for (int i = 0; i < 200'000 && push != Push::kFull; ++i) {  // fills the kernel's buffers first
    push = exchange->push(frame);
    if (push == Push::kTaken) ++n_taken;
  }
  ASSERT_EQ(push, Push::kFull);
  Client other(running.server->port());
  other.send_text("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_TRUE(other.read_until("ok").ends_with("ok"));
  std::thread reader([&] { client.read_until("the end"); });
  EXPECT_TRUE(running.eventually([&] { return exchange->push(frame) == Push::kTaken; }));
  EXPECT_TRUE(running.eventually([&] { return exchange->push("the end") == Push::kTaken; }));
  exchange->finish();
  reader.join();
  EXPECT_GT(n_taken, 0u);
}

TEST(HttpServer, RefusesWhatIsTooLargeOrMalformedBeforeReadingIt) {
  ServerConfig config;
  config.max_body_bytes = 100;
  config.max_header_bytes = 1000;
  Running running(config);
  const auto answer = [&](std::string_view text) {
    Client client(running.server->port());
    client.send_text(text);
    return client.read_until("\r\n");
  };
  EXPECT_EQ(answer("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"),
            "HTTP/1.1 413 Content Too Large\r\n");
  EXPECT_EQ(
      answer("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n")
          .substr(0, 12),
      "HTTP/1.1 400");
  EXPECT_EQ(answer("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(2000, 'a') + "\r\n\r\n")
                .substr(0, 12),
            "HTTP/1.1 431");
  EXPECT_EQ(answer("\x16\x03\x01 nonsense\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(answer("GET / HTTP/1.1\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
  EXPECT_EQ(answer("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: "
                   "chunked\r\n\r\n")
                .substr(0, 12),
            "HTTP/1.1 400");
  EXPECT_EQ(answer("GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n").substr(0, 12), "HTTP/1.1 400");
}

TEST(HttpServer, ABodyWhoseEndIsUnclearIsNeverReadAsARequest) {
  Running running;
  constexpr std::string_view kHidden = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::initializer_list<std::pair<std::string_view, int>> cases = {
      {"HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n", 501},
      {"HTTP/1.1\r\nTransfer-Encoding: identity\r\n", 501},
      {"HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n", 501},
      {"HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n", 501},
      {"HTTP/1.1\r\nTransfer-Encoding:\r\n", 501},
      {"HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n", 400},
      {"HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
      {"HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n", 400},
      {"HTTP/1.1\r\nContent-Length: 3, 4\r\n", 400},
      {"HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 100\r\n", 415}};
  std::vector<std::unique_ptr<Client>> clients;  // together: each connection lingers for a second
  for (const auto& [head, status] : cases) {
    clients.push_back(std::make_unique<Client>(running.server->port()));
    clients.back()->send_text("POST /echo " + std::string(head) + "Host: x\r\n\r\n" +
                              std::string(kHidden));
  }
  auto client_of = clients.begin();
  for (const auto& [head, status] : cases) {
    const std::string all = (*client_of++)->read_all();  // and the connection ends
    EXPECT_TRUE(all.starts_with("HTTP/1.1 " + std::to_string(status))) << head << all;
    EXPECT_EQ(all.find("HTTP/1.1 200"), std::string::npos) << head << all;
  }
  Client client(running.server->port());
  client.send_text(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\none\r\n0\r\n\r\n");
  EXPECT_TRUE(client.read_until("one").ends_with("one"));
}

TEST(HttpServer, EndsConnectionsThatNeverFinishTheirRequest) {
  ServerConfig config;
  config.header_timeout = 300ms;
  config.body_timeout = 300ms;
  Running running(config);
  Client head(running.server->port());
  head.send_text("GET / HTTP/1.1\r\nHos");
  Client body(running.server->port());
  body.send_text("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(head.read_all().starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(body.read_all().starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(running.eventually([&] { return running.server->n_connections() == 0; }));
}

TEST(HttpServer, SendsCommentsWhileAStreamIsSilent) {
  ServerConfig config;
  config.keep_alive_comment = 100ms;
  Running running(config);
  Client client(running.server->port());
  client.send_text("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_kept();
  exchange->start_stream({200, "text/event-stream", {}, ""});
  EXPECT_TRUE(client.read_until(": keep-alive\n\n").ends_with(": keep-alive\n\n"));
}

TEST(HttpServer, DrainFinishesWhatRunsAndClosesWhatIdles) {
  Running running;
  Client idle(running.server->port());
  Client busy(running.server->port());
  busy.send_text("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_kept();
  running.server->drain();
  EXPECT_EQ(idle.read_all(), "");
  exchange->respond({200, "text/plain", {}, "bye"});
  EXPECT_TRUE(busy.read_all().ends_with("bye"));
  EXPECT_TRUE(running.eventually([&] { return running.server->n_connections() == 0; }));
}

TEST(HttpServer, AHeaderValueCannotOpenAnotherHeader) {
  Running running;
  Client client(running.server->port());
  client.send_text("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = running.handler.wait_kept();
  exchange->respond({200, "text/plain", {{"X-A", "1\r\nX-Evil: 2"}}, ""});
  EXPECT_EQ(client.read_until("\r\n\r\n").find("\nX-Evil"), std::string::npos);
}

TEST(Router, FindsPatternsMethodsAndParameters) {
  Router router;
  router.add("GET", "/v1/responses/{id}", [](auto, const auto&) {});
  router.add("DELETE", "/v1/responses/{id}", [](auto, const auto&) {});
  router.add("POST", "/v1/responses/{id}/cancel", [](auto, const auto&) {});
  const auto found = router.match("POST", "/v1/responses/abc/cancel");
  ASSERT_NE(found.endpoint, nullptr);
  EXPECT_EQ(found.params, (std::vector<std::pair<std::string, std::string>>{{"id", "abc"}}));
  EXPECT_NE(router.match("HEAD", "/v1/responses/x/").endpoint, nullptr);
  EXPECT_EQ(router.match("PUT", "/v1/responses/x").allow, "GET, DELETE");
  EXPECT_TRUE(router.match("GET", "/v1/nothing").pattern.empty());
  EXPECT_TRUE(router.match("GET", "/v1/responses/").pattern.empty());
}

TEST(ApiKeys, KnowsItsKeysAndReloadsThem) {
  const std::string path = testing::TempDir() + "/keys.txt";
  std::ofstream(path) << "# ours\n0123456789abcdef tenant-a\nfedcba9876543210\n";
  auto keys = ApiKeys::load(path);
  ASSERT_TRUE(keys.has_value());
  Request request;
  EXPECT_EQ((*keys)->tenant_of(request), std::nullopt);
  request.headers = {{"authorization", "Bearer 0123456789abcdef"}};
  EXPECT_EQ((*keys)->tenant_of(request), "tenant-a");
  request.headers = {{"x-api-key", "fedcba9876543210"}};
  EXPECT_EQ((*keys)->tenant_of(request), "");
  request.headers = {{"x-api-key", "fedcba987654321"}};
  EXPECT_EQ((*keys)->tenant_of(request), std::nullopt);
  std::ofstream(path) << "short\n";
  EXPECT_FALSE((*keys)->reload().has_value());
  EXPECT_EQ((*keys)->size(), 2u);
  std::ofstream(path) << "aaaaaaaaaaaaaaaaaaaaaaa b\n";
  EXPECT_TRUE((*keys)->reload().has_value());
  EXPECT_EQ((*keys)->size(), 1u);
  EXPECT_EQ(ApiKeys::load("/nonexistent/keys").error().code, core::Code::kIo);
}

TEST(Message, NumbersAreWrittenInBothBases) {
  std::string out;
  append_hex(out, 0);
  append_hex(out, 0x1f2e, 6);
  append_hex(out, ~uint64_t{0}, 99);
  append_decimal(out, 0);
  append_decimal(out, ~uint64_t{0});
  EXPECT_EQ(out, "0001f2effffffffffffffff018446744073709551615");
}

TEST(Exchange, WhatAClosedCallbackHoldsLivesUntilTheExchangeIsOver) {
  const auto make = [] {
    return std::make_shared<Exchange>(Request{}, [] {}, true, false, 1024, "");
  };
  auto held = std::make_shared<int>(1);
  const auto finished = make();
  finished->on_closed([held] { ++*held; });
  EXPECT_EQ(held.use_count(), 2);
  finished->release();
  EXPECT_EQ(held.use_count(), 1);
  finished->on_closed([held] {});  // late: the exchange is over
  EXPECT_EQ(held.use_count(), 1);

  const auto left = make();
  left->on_closed([held] { ++*held; });
  left->client_gone();
  EXPECT_EQ(*held, 2);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace hadal::http
