#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hadal::main {

// A line being typed: text, cursor and history, moved by the bytes that a terminal sends. Knows
// nothing of how it is shown. Keys are those of common shells.
class LineBuffer {
 public:
  enum class Event : uint8_t { kNone, kChanged, kSubmitted, kEnd, kClearScreen };
  Event feed(char byte);
  // A new, empty line.
  void clear();
  // Makes `line` the newest of the history.
  void remember(const std::string& line);

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // a byte offset, between characters
  // A character of several bytes or a key is not complete yet.
  bool unfinished() const { return n_missing_ > 0 || !escape_.empty(); }

 private:
  Event feed_escape(char byte);
  Event apply_escape(std::string_view sequence);
  Event insert(char byte);
  Event erase(size_t begin, size_t end);
  Event move(size_t to);
  Event recall(size_t index);
  size_t before(size_t at) const;
  size_t after(size_t at) const;
  size_t word_before(size_t at) const;
  size_t word_after(size_t at) const;

  std::string text_;
  size_t cursor_ = 0;
  int n_missing_ = 0;     // bytes of the character at the cursor
  std::string escape_;    // a sequence being read
  bool pasting_ = false;  // between the marks of a bracketed paste, Enter is text
  std::vector<std::string> history_;
  size_t recalled_ = 0;  // index into history_; its size: the line that was typed
  std::string typed_;
};

// Columns of one line's piece as a terminal shows it; a line break counts as the sign that stands
// for it.
size_t shown_columns(std::string_view text);

// Asks for lines on a terminal, which it holds in the mode that it needs while it lives: what is
// typed meanwhile is neither shown nor lost.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  // stdin and stderr are a terminal that can do more than a printer.
  static bool possible();

  enum class Outcome : uint8_t { kLine, kEnd, kInterrupted };
  Outcome read(std::string_view prompt, std::string& line);

 private:
  void show(std::string_view prompt);
  void leave_line(std::string_view prompt);

  LineBuffer buffer_;
  size_t cursor_row_ = 0;  // of the shown text
};

}  // namespace hadal::main
