#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hadal::metrics {

// Where a piece of work stands in a trace: W3C Trace Context, https://www.w3.org/TR/trace-context/
struct TraceContext {
  uint64_t trace_high = 0, trace_low = 0;  // never both 0
  uint64_t span = 0;                       // of the caller, or of this piece; never 0
  bool sampled = false;

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

// Nothing for a header that the specification tells to ignore. Versions above 00 are read as far as
// 00 goes.
std::optional<TraceContext> parse_traceparent(std::string_view header);
std::string traceparent(const TraceContext& context);
// An id that is never 0, and another one for every `number` below 2^64: the finaliser of
// SplitMix64, a bijection (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// 2014).
uint64_t scattered_id(uint64_t base, uint64_t number);
// 16 lower-case hexadecimal digits.
std::string hex16(uint64_t value);

// A finished piece of work.
struct Span {
  enum class Kind : uint8_t { kInternal = 1, kServer = 2 };  // numbers of OTLP
  using Value = std::variant<std::string, int64_t, double>;

  TraceContext context;  // `span` is this one
  uint64_t parent = 0;   // 0: the trace begins here
  std::string name;
  Kind kind = Kind::kInternal;
  std::chrono::system_clock::time_point begin, end;
  std::vector<std::pair<std::string, Value>> attributes;
  bool failed = false;
  std::string error;  // with `failed`, may be empty
};

// Where spans go. Any thread; never blocks, drops what it cannot take.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void offer(Span span) = 0;
};

}  // namespace hadal::metrics
