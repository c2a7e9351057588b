#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/metrics/trace.h"
#include "base/types/request.h"
#include "gateway/http/message.h"

namespace hadal::serving {

// Spans of one request, if it belongs to a sampled trace; else nothing. Names of attributes: the
// OpenTelemetry semantic conventions for HTTP and for generative AI.

// The request itself, from the end of its body to the last byte of its answer.
void trace_request(const http::Request& request, std::string_view route, int status,
                   std::chrono::microseconds took, metrics::SpanSink& spans);

// One choice in the engine, a child of the request's span, with its queue, prefill and decode as
// children. Ends now.
void trace_generation(const http::Request& request, std::string_view model, uint32_t choice,
                      const types::Completion& completion, metrics::SpanSink& spans);

}  // namespace hadal::serving
