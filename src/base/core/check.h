#pragma once

#include <source_location>
#include <string_view>

namespace hadal::core {

// Prints file, line, condition and detail to stderr, then aborts. On in release builds too.
[[noreturn]] void check_failed(std::string_view condition, std::string_view detail,
                               std::source_location where = std::source_location::current());

}  // namespace hadal::core

// A broken invariant: never half-continue. The optional second argument is a string with the values
// involved.
#define HADAL_CHECK(condition, ...)                                             \
  do {                                                                          \
    if (!(condition)) [[unlikely]] {                                            \
      ::hadal::core::check_failed(#condition, ::std::string_view{__VA_ARGS__}); \
    }                                                                           \
  } while (false)
