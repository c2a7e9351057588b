#include "base/core/log.h"

#include <atomic>
#include <memory>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace hadal::core {
namespace {

std::atomic<LogLevel> g_level{
    LogLevel::kInfo};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): the log sink
std::atomic<LogFormat> g_format{
    LogFormat::kText};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): the log sink

spdlog::logger& sink() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = spdlog::stderr_color_mt("hadal");
    made->set_level(spdlog::level::trace);
    made->set_pattern("%v");
    return made;
  }();
  return *logger;
}

std::string json_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out;
}

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                 spdlog::level::warn, spdlog::level::err};

}  // namespace

void set_log(LogLevel level, LogFormat format) {
  g_level = level;
  g_format = format;
  sink().set_pattern(format == LogFormat::kJson ? "{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",%v}"
                                                : "%H:%M:%S.%e %^%l%$ %v");
}

bool log_enabled(LogLevel level) {
  return level >= g_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view area, std::string_view message) {
  const auto index = static_cast<size_t>(level);
  if (g_format.load(std::memory_order_relaxed) == LogFormat::kJson) {
    sink().log(kLevels[index], "\"level\":\"{}\",\"area\":\"{}\",\"message\":\"{}\"", kNames[index],
               area, json_escaped(message));
  } else {
    sink().log(kLevels[index], "{}: {}", area, message);
  }
}

}  // namespace hadal::core
