#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace hadal::core {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

// The one process-wide object: the sink is written to, never read. Set once by main, before threads
// start.
void set_log(LogLevel level, LogFormat format);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view area, std::string_view message);

}  // namespace hadal::core

// HADAL_LOG(kInfo, "weights", "mapped {} shards", n): stderr; any thread; never on the step's hot
// path.
#define HADAL_LOG(level, area, ...)                                                              \
  do {                                                                                           \
    if (::hadal::core::log_enabled(::hadal::core::LogLevel::level)) {                            \
      ::hadal::core::log_line(::hadal::core::LogLevel::level, area, ::fmt::format(__VA_ARGS__)); \
    }                                                                                            \
  } while (false)
