#include "main/sse_lines.h"

#include <vector>

#include <gtest/gtest.h>

namespace hadal::main {
namespace {

constexpr std::string_view kAnswer =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\n: t=1\r\n9\r\n\ndata: ab\r\n3\r\nc\n\n\r\n0\r\n\r\n";

std::vector<std::string> lines_of(std::string_view text, size_t piece) {
  SseLines reader;
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size(); at += piece) {
    EXPECT_TRUE(reader.feed(text.substr(at, piece), [&](std::string_view line) {
      lines.emplace_back(line);
    })) << reader.problem();
  }
  EXPECT_TRUE(reader.done());
  return lines;
}

TEST(SseLines, LinesAreTheSameInPiecesOfAnySize) {
  const std::vector<std::string> expected = {": t=1", "data: abc", ""};
  for (size_t piece = 1; piece <= kAnswer.size(); ++piece)
    EXPECT_EQ(lines_of(kAnswer, piece), expected) << piece;
}

TEST(SseLines, ARefusalIsNamed) {
  SseLines reader;
  EXPECT_FALSE(reader.feed("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n",
                           [](std::string_view) {}));
  EXPECT_EQ(reader.problem(), "the answer is HTTP/1.1 429 Too Many Requests");
}

TEST(SseLines, ASizeThatIsNoNumberFails) {
  SseLines reader;
  EXPECT_FALSE(reader.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                           [](std::string_view) {}));
}

}  // namespace
}  // namespace hadal::main
