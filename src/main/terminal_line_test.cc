#include "main/terminal_line.h"

#include <gtest/gtest.h>

#include "main/terminal.h"

namespace hadal::main {
namespace {

using Event = LineBuffer::Event;

Event type(LineBuffer& line, std::string_view bytes) {
  Event last = Event::kNone;
  for (const char byte : bytes) last = line.feed(byte);
  return last;
}

TEST(LineBuffer, TypedTextIsTheLineAndEnterSubmitsIt) {
  LineBuffer line;
  type(line, "ls -l");
  EXPECT_EQ(line.text(), "ls -l");
  EXPECT_EQ(line.feed('\r'), Event::kSubmitted);
}

TEST(LineBuffer, KeysMoveOverAndEraseWholeCharacters) {
  LineBuffer line;
  type(line, "aü漢");
  type(line, "\x1b[D\x7f");
  EXPECT_EQ(line.text(), "a漢");
  type(line, "\x1b[3~");
  EXPECT_EQ(line.text(), "a");
  type(line, "\x1b[Hb\x1b[F!");
  EXPECT_EQ(line.text(), "ba!");
}

TEST(LineBuffer, AnUnfinishedCharacterIsKnownAsSuch) {
  LineBuffer line;
  line.feed('\xE6');
  EXPECT_TRUE(line.unfinished());
  type(line, "\xBC\xA2");
  EXPECT_FALSE(line.unfinished());
}

TEST(LineBuffer, WordsAndEndsAreErasedAtOnce) {
  LineBuffer line;
  type(line, "one two  three\x17");
  EXPECT_EQ(line.text(), "one two  ");
  type(line, "\x1b[1;5D\x0b");
  EXPECT_EQ(line.text(), "one ");
  type(line, "\x15");
  EXPECT_EQ(line.text(), "");
}

TEST(LineBuffer, HistoryIsWalkedAndTheTypedLineComesBack) {
  LineBuffer line;
  line.remember("first");
  line.remember("second");
  line.clear();
  type(line, "new");
  type(line, "\x1b[A\x1b[A\x1b[A");
  EXPECT_EQ(line.text(), "first");
  type(line, "\x1b[B\x1b[B\x1b[B");
  EXPECT_EQ(line.text(), "new");
}

TEST(LineBuffer, APastedTextOfSeveralLinesIsOneLine) {
  LineBuffer line;
  EXPECT_EQ(type(line, "\x1b[200~a\nb\r\x1b[201~"), Event::kNone);
  EXPECT_EQ(line.text(), "a\nb\n");
  EXPECT_EQ(line.feed('\r'), Event::kSubmitted);
}

TEST(LineBuffer, CtrlDEndsAnEmptyLineOnly) {
  LineBuffer line;
  EXPECT_EQ(type(line, "a\x04"), Event::kChanged);
  EXPECT_EQ(type(line, "\x7f\x04"), Event::kEnd);
}

TEST(LineBuffer, UnknownKeysChangeNothing) {
  LineBuffer line;
  type(line, "a\x1b[15~\x1b[99;99Zb\x01\x1bx");
  EXPECT_EQ(line.text(), "ab");
}

TEST(ShownColumns, WideCharactersTakeTwo) {
  EXPECT_EQ(shown_columns("aü"), 2u);
  EXPECT_EQ(shown_columns("漢字"), 4u);
  EXPECT_EQ(shown_columns("a\nb"), 3u);
}

TEST(WithoutControls, OrdersForTheTerminalAreDropped) {
  EXPECT_EQ(without_controls("a\x1b[31mb\tc\n\x07\x7f\xC2\x9B漢"), "a[31mb\tc\n漢");
}

}  // namespace
}  // namespace hadal::main
