#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <optional>

#include <fmt/format.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/tokenizer/utf8.h"
#include "main/terminal_line.h"

namespace hadal::main {
namespace {

std::optional<termios> mode_before;

// Ctrl-C stays a signal; all other keys come one by one and are not shown.
void hold_terminal() {
  termios mode = {};
  if (tcgetattr(STDIN_FILENO, &mode) != 0) return;
  if (!mode_before) mode_before = mode;
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  mode.c_iflag &= ~static_cast<tcflag_t>(IXON);
  mode.c_cc[VMIN] = 1;
  mode.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
}

void give_terminal_back() {
  if (mode_before) tcsetattr(STDIN_FILENO, TCSADRAIN, &*mode_before);
  mode_before.reset();
}

size_t terminal_columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Widths are those of Unicode, whatever the person's locale says.
size_t columns_of(uint32_t code) {
  static const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (unicode == nullptr) return 1;
  const locale_t before = uselocale(unicode);
  const int width = wcwidth(static_cast<wchar_t>(code));
  uselocale(before);
  return width < 0 ? 1 : static_cast<size_t>(width);
}

std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "↵";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

size_t shown_columns(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const tokenizer::Utf8Char next = tokenizer::next_char(text);
    columns += text.front() == '\n' ? 1 : columns_of(next.code);
    text.remove_prefix(next.size);
  }
  return columns;
}

bool LineEditor::possible() {
  const char* term = std::getenv("TERM");
  return isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0 && term != nullptr &&
         std::string_view(term) != "dumb";
}

LineEditor::LineEditor() {
  std::atexit(give_terminal_back);
  hold_terminal();
}

LineEditor::~LineEditor() {
  give_terminal_back();
}

void LineEditor::show(std::string_view prompt) {
  const size_t width = terminal_columns();
  std::string out;
  if (cursor_row_ > 0) out += fmt::format("\x1b[{}A", cursor_row_);
  out += fmt::format("\r\x1b[J{}{}", prompt, visible(buffer_.text()));
  const size_t all = shown_columns(prompt) + shown_columns(buffer_.text());
  // At a full row the terminal waits with the break; it is made here.
  if (all > 0 && all % width == 0) out += "\n";
  const size_t at = shown_columns(prompt) +
                    shown_columns(std::string_view(buffer_.text()).substr(0, buffer_.cursor()));
  const size_t last_row = all / width;
  cursor_row_ = at / width;
  if (last_row > cursor_row_) out += fmt::format("\x1b[{}A", last_row - cursor_row_);
  out += "\r";
  if (at % width > 0) out += fmt::format("\x1b[{}C", at % width);
  fmt::print(stderr, "{}", out);
  std::fflush(stderr);
}

// Below the last row of what was typed, in the terminal's usual state.
void LineEditor::leave_line(std::string_view prompt) {
  const size_t all = shown_columns(prompt) + shown_columns(buffer_.text());
  const size_t rows_below = all / terminal_columns() - cursor_row_;
  if (rows_below > 0) fmt::print(stderr, "\x1b[{}B", rows_below);
  fmt::print(stderr, "\r\n\x1b[?2004l");
  std::fflush(stderr);
  cursor_row_ = 0;
}

LineEditor::Outcome LineEditor::read(std::string_view prompt, std::string& line) {
  hold_terminal();  // again: a shell that stopped and resumed us has set its own mode
  fmt::print(stderr, "\x1b[?2004h");
  buffer_.clear();
  cursor_row_ = 0;
  show(prompt);
  while (true) {
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    LineBuffer::Event event = LineBuffer::Event::kEnd;
    if (n == 1) event = buffer_.feed(byte);
    if (n < 0 && errno == EINTR) {
      line = buffer_.text();
      leave_line(prompt);
      return Outcome::kInterrupted;
    }
    switch (event) {
      case LineBuffer::Event::kNone:
        break;
      case LineBuffer::Event::kClearScreen:
        fmt::print(stderr, "\x1b[H\x1b[2J");
        cursor_row_ = 0;
        show(prompt);
        break;
      case LineBuffer::Event::kChanged:
        if (!buffer_.unfinished()) show(prompt);
        break;
      case LineBuffer::Event::kSubmitted:
        line = buffer_.text();
        leave_line(prompt);
        if (!line.empty()) buffer_.remember(line);
        return Outcome::kLine;
      case LineBuffer::Event::kEnd:
        leave_line(prompt);
        return Outcome::kEnd;
    }
  }
}

}  // namespace hadal::main
