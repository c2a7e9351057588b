#include "main/loading_progress.h"

#include <cstdio>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/core/log.h"

namespace hadal::main {
namespace {

constexpr auto kEach = std::chrono::seconds(1);

class TerminalLine {
 public:
  TerminalLine() = default;
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;
  ~TerminalLine() {
    if (n_ > 0) put("");
  }
  void put(std::string_view line) {
    fmt::print(stderr, "\r{:<{}}", line, n_);
    if (line.empty()) fmt::print(stderr, "\r");
    std::fflush(stderr);
    n_ = line.size();
  }

 private:
  size_t n_ = 0;  // columns that are written
};

}  // namespace

LoadingProgress::LoadingProgress(const core::Clock& clock, Show show)
    : clock_(clock), show_(std::move(show)), told_(clock.now()) {}

void LoadingProgress::tell(std::string_view what, uint64_t done, uint64_t total) {
  if (!show_) return;
  const core::TimePoint now = clock_.now();
  if (now - told_ < kEach) return;
  told_ = now;
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  show_(fmt::format("loading: {:.1f} of {:.1f} GB {}", gb(done), gb(total), what));
}

LoadingProgress::Show loading_log() {
  return [](std::string_view line) { HADAL_LOG(kInfo, "load", "{}", line); };
}

LoadingProgress::Show loading_line() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [line = std::make_shared<TerminalLine>()](std::string_view text) { line->put(text); };
}

}  // namespace hadal::main
