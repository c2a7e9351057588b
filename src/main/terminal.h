#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/core/result.h"

namespace hadal::main {

// Catches Ctrl-C while it lives. One at a time. Before and after, Ctrl-C ends the program.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Presses since the last call.
  int take();
};

// Says on stderr what the program waits for, once that takes over a second and if stderr is a
// terminal; the line is gone when the object is.
class WaitNote {
 public:
  explicit WaitNote(std::string what);
  ~WaitNote();
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;

 private:
  void run(const std::stop_token& stop);

  const std::string what_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // only on a terminal
};

// Writes an answer as it comes. On a terminal thinking is dimmed and control characters are left
// out; elsewhere the answer alone is written, byte for byte.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(std::FILE* out);
  void reasoning(std::string_view text);
  void content(std::string_view text);
  // Shows what was written so far.
  core::Status flush();
  // Ends the line if it is open and has back the terminal's usual look.
  core::Status end();

 private:
  void write(std::string_view text);

  std::FILE* const out_;
  const bool terminal_;
  bool dimmed_ = false;
  bool open_line_ = false;
  bool failed_ = false;
};

// `text` without what a terminal takes for orders: C0 but newline and tab, DEL, C1.
std::string without_controls(std::string_view text);

struct InputLine {
  enum class Kind : unsigned char { kLine, kEnd, kInterrupted } kind = Kind::kEnd;
  std::string text;
};
// One line of stdin, prompted for on stderr. Not buffered by us: nothing is lost between calls.
InputLine read_terminal_line(std::string_view prompt);

}  // namespace hadal::main
