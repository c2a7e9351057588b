#include "gateway/serving/generation_trace.h"

#include <fmt/format.h>

namespace hadal::serving {
namespace {

using metrics::Span;
using SystemClock = std::chrono::system_clock;

bool is_traced(const http::Request& request) {
  return request.trace && request.trace->sampled;
}

Span span_in(const metrics::TraceContext& parent, uint64_t id, std::string name) {
  Span span;
  span.context = parent;
  span.context.span = id;
  span.parent = parent.span;
  span.name = std::move(name);
  return span;
}

SystemClock::duration milliseconds(double ms) {
  return std::chrono::duration_cast<SystemClock::duration>(
      std::chrono::duration<double, std::milli>(ms));
}

}  // namespace

void trace_request(const http::Request& request, std::string_view route, int status,
                   std::chrono::microseconds took, metrics::SpanSink& spans) {
  if (!is_traced(request)) return;
  Span span;
  span.context = *request.trace;
  span.parent = request.trace_parent;
  span.name = fmt::format("{} {}", request.method, route);
  span.kind = Span::Kind::kServer;
  span.end = SystemClock::now();
  span.begin = span.end - took;
  span.attributes = {{"http.request.method", request.method},
                     {"http.route", std::string(route)},
                     {"http.response.status_code", int64_t{status}},
                     {"client.address", request.peer},
                     {"hadal.request_id", request.request_id}};
  span.failed = status >= 500;
  spans.offer(std::move(span));
}

void trace_generation(const http::Request& request, std::string_view model, uint32_t choice,
                      const types::Completion& completion, metrics::SpanSink& spans) {
  if (!is_traced(request)) return;
  const types::Timings& timings = completion.timings;
  const auto queue = milliseconds(timings.queue_ms), prefill = milliseconds(timings.prefill_ms),
             decode = milliseconds(timings.decode_ms);
  Span whole = span_in(*request.trace, metrics::scattered_id(request.trace->span, choice),
                       fmt::format("generate {}", model));
  whole.end = SystemClock::now();
  whole.begin = whole.end - queue - prefill - decode;
  whole.attributes = {
      {"gen_ai.operation.name", "generate"},
      {"gen_ai.request.model", std::string(model)},
      {"gen_ai.usage.input_tokens", int64_t{completion.n_prompt_tokens}},
      {"gen_ai.usage.output_tokens", int64_t{completion.n_generated_tokens}},
      {"gen_ai.response.finish_reasons", std::string(types::finish_reason_name(completion.reason))},
      {"hadal.cached_tokens", int64_t{timings.cached_tokens()}},
      {"hadal.cache_miss", std::string(types::cache_miss_name(timings.miss))},
      {"hadal.preemptions", int64_t{timings.n_preemptions}}};
  whole.failed = completion.reason == types::FinishReason::kError;
  whole.error = completion.error;
  auto at = whole.begin;
  const metrics::TraceContext inside = whole.context;
  spans.offer(std::move(whole));
  uint64_t number = 0;
  for (const auto& [name, length] :
       {std::pair("queue", queue), std::pair("prefill", prefill), std::pair("decode", decode)}) {
    Span part = span_in(inside, metrics::scattered_id(inside.span, number++), name);
    part.begin = at;
    part.end = at += length;
    spans.offer(std::move(part));
  }
}

}  // namespace hadal::serving
