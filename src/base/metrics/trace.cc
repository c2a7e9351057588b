#include "base/metrics/trace.h"

#include <charconv>

#include <fmt/format.h>

namespace hadal::metrics {
namespace {

// Version, trace, span, flags: "00-" + 32 + "-" + 16 + "-" + 2.
constexpr size_t kLength = 55;

// Lower-case digits only, all of `text`.
std::optional<uint64_t> hex(std::string_view text) {
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return std::nullopt;
  }
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view header) {
  if (header.size() < kLength || header[2] != '-' || header[35] != '-' || header[52] != '-')
    return std::nullopt;
  const auto version = hex(header.substr(0, 2));
  if (!version || *version == 0xff) return std::nullopt;
  if (header.size() > kLength && (*version == 0 || header[kLength] != '-')) return std::nullopt;
  const auto high = hex(header.substr(3, 16)), low = hex(header.substr(19, 16));
  const auto span = hex(header.substr(36, 16)), flags = hex(header.substr(53, 2));
  if (!high || !low || !span || !flags || (*high | *low) == 0 || *span == 0) return std::nullopt;
  return TraceContext{*high, *low, *span, (*flags & 1) != 0};
}

std::string traceparent(const TraceContext& context) {
  return fmt::format("00-{:016x}{:016x}-{:016x}-{:02x}", context.trace_high, context.trace_low,
                     context.span, context.sampled ? 1 : 0);
}

uint64_t scattered_id(uint64_t base, uint64_t number) {
  uint64_t x = base + (number + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x != 0 ? x : 1;
}

std::string hex16(uint64_t value) {
  return fmt::format("{:016x}", value);
}

}  // namespace hadal::metrics
