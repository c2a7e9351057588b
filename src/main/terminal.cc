#include "main/terminal.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace hadal::main {
namespace {

std::atomic<int> interrupts_seen{0};
struct sigaction action_before;

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

void on_interrupt(int /*signal*/) {
  // Nobody takes them any more: the program hangs, and a person wants out.
  if (interrupts_seen.fetch_add(1) >= 3) _exit(130);
}

}  // namespace

Interrupts::Interrupts() {
  interrupts_seen = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: a read at the prompt returns
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &action_before);
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &action_before, nullptr);
}

int Interrupts::take() {
  return interrupts_seen.exchange(0);
}

WaitNote::WaitNote(std::string what) : what_(std::move(what)) {
  if (isatty(STDERR_FILENO) != 0) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
}

WaitNote::~WaitNote() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void WaitNote::run(const std::stop_token& stop) {
  // Ctrl-C is for the thread that reads and waits.
  std::unique_lock lock(mutex_);
  int seconds = 0;
  while (!wake_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; })) {
    if (stop.stop_requested()) break;
    fmt::print(stderr, "\r\x1b[K{} {} s", what_, ++seconds);
    std::fflush(stderr);
  }
  if (seconds > 0) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }
}

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) continue;
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                       static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) {
      ++i;
      continue;
    }
    out.push_back(text[i]);
  }
  return out;
}

AnswerPrinter::AnswerPrinter(std::FILE* out) : out_(out), terminal_(isatty(fileno(out)) != 0) {}

void AnswerPrinter::write(std::string_view text) {
  if (text.empty()) return;
  failed_ |= std::fwrite(text.data(), 1, text.size(), out_) != text.size();
}

void AnswerPrinter::reasoning(std::string_view text) {
  if (!terminal_ || text.empty()) return;
  if (!std::exchange(dimmed_, true)) write(kDim);
  write(without_controls(text));
  open_line_ = text.back() != '\n';
}

void AnswerPrinter::content(std::string_view text) {
  if (text.empty()) return;
  if (std::exchange(dimmed_, false)) {
    write(kPlain);
    write(open_line_ ? "\n\n" : "\n");
  }
  if (terminal_) {
    write(without_controls(text));
  } else {
    write(text);
  }
  open_line_ = text.back() != '\n';
}

core::Status AnswerPrinter::flush() {
  failed_ |= std::fflush(out_) != 0;
  if (!failed_) return {};
  return core::Error{core::Code::kIo,
                     "the answer cannot be written to standard output: is the disk full, or the "
                     "reader gone?"};
}

core::Status AnswerPrinter::end() {
  if (std::exchange(dimmed_, false)) write(kPlain);
  if (std::exchange(open_line_, false)) write("\n");
  return flush();
}

InputLine read_terminal_line(std::string_view prompt) {
  fmt::print(stderr, "{}", prompt);
  std::fflush(stderr);
  InputLine line;
  char byte = 0;
  while (true) {
    const ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR) {
      line.kind = InputLine::Kind::kInterrupted;
      return line;
    }
    if (n <= 0) {
      line.kind = line.text.empty() ? InputLine::Kind::kEnd : InputLine::Kind::kLine;
      return line;
    }
    if (byte == '\n') {
      line.kind = InputLine::Kind::kLine;
      return line;
    }
    line.text.push_back(byte);
  }
}

}  // namespace hadal::main
