#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/core/clock.h"

namespace hadal::main {

// Tells how far the loading of a model is: nothing in the first second, then at most one line a
// second. One thread.
class LoadingProgress {
 public:
  using Show = std::function<void(std::string_view line)>;
  // `clock` must outlive it. `show` may be empty.
  LoadingProgress(const core::Clock& clock, Show show);

  // `done` of `total` bytes are `what` ("checked"): "loading: 1.2 of 2.2 GB checked".
  void tell(std::string_view what, uint64_t done, uint64_t total);

 private:
  const core::Clock& clock_;
  const Show show_;
  core::TimePoint told_;
};

// Lines of the program's log, in its form: for servers.
LoadingProgress::Show loading_log();
// One line on stderr that is written over and taken away when the last copy goes; nothing if stderr
// is no terminal.
LoadingProgress::Show loading_line();

}  // namespace hadal::main
