#include "main/standard_output.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <system_error>

#include <fmt/format.h>

namespace hadal::main {
namespace {

// The streams remember that a write failed, not always why.
int report_lost(int error) {
  fmt::print(stderr,
             "hadal: standard output cannot be written{}{}; is the disk full, or the reader gone? "
             "Make room, or send the output elsewhere\n",
             error != 0 ? ": " : "", error != 0 ? std::strerror(error) : "");
  return 1;
}

}  // namespace

int run_with_checked_output(const std::function<int()>& command) {
  std::signal(SIGXFSZ, SIG_IGN);
  int code = 0;
  try {
    code = command();
  } catch (const std::system_error& error) {  // fmt::print throws when stdout takes no more
    if (std::ferror(stdout) == 0) throw;
    return report_lost(error.code().value());
  }
  errno = 0;
  std::cout.flush();
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  const int error = errno;
  return lost && code == 0 ? report_lost(error) : code;
}

}  // namespace hadal::main
