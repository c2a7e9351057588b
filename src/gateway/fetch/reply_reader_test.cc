#include "gateway/fetch/reply_reader.h"

#include <gtest/gtest.h>

namespace hadal::fetch {
namespace {

constexpr std::string_view kReplies[] = {
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain \r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: "
    "x\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nhello",
};

TEST(ReplyReader, EveryCutOfAReplyGivesTheSame) {
  for (const std::string_view reply : kReplies) {
    for (size_t cut = 0; cut <= reply.size(); ++cut) {
      ReplyReader reader(100);
      if (reader.feed(reply.substr(0, cut))) reader.feed(reply.substr(cut));
      EXPECT_TRUE(reader.end()) << reply << cut;
      EXPECT_EQ(reader.status(), 200);
      EXPECT_EQ(reader.body(), "hello") << reply << cut;
      EXPECT_FALSE(reader.truncated());
    }
  }
}

TEST(ReplyReader, ABodyIsCutAtItsLimit) {
  for (const std::string_view reply : kReplies) {
    ReplyReader reader(3);
    reader.feed(reply);
    EXPECT_TRUE(reader.end());
    EXPECT_EQ(reader.body(), "hel");
    EXPECT_TRUE(reader.truncated());
  }
}

TEST(ReplyReader, WhatEndsEarlyOrIsWrongIsAnError) {
  for (const std::string_view reply :
       {"", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "SSH-2.0-x\r\n\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"}) {
    ReplyReader reader(100);
    reader.feed(reply);
    EXPECT_FALSE(reader.end()) << reply;
  }
  ReplyReader endless(100);
  EXPECT_FALSE(endless.feed("HTTP/1.1 200 OK\r\nX: " + std::string(1 << 20, 'x')));
}

}  // namespace
}  // namespace hadal::fetch
