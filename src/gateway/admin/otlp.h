#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/core/result.h"
#include "base/metrics/trace.h"

namespace hadal::admin {

// The body of an OTLP/HTTP export request in its JSON encoding (opentelemetry-proto,
// ExportTraceServiceRequest: ids in hexadecimal, 64-bit numbers as strings).
std::string otlp_json(std::span<const metrics::Span> spans, std::string_view version);

// Where a collector listens. "http://HOST[:PORT][/PATH]": the port is 4318 and the path /v1/traces
// unless given.
struct OtlpEndpoint {
  std::string host, port, path;
};
// kInvalidRequest for anything else; https is not spoken: a collector beside the server does that.
core::Result<OtlpEndpoint> parse_otlp_endpoint(std::string_view url);

// Sends one body and waits for the answer, at most `timeout_ms` for each of the steps. The thread
// of the exporter. kIo: not reached, or not answered with 2xx.
core::Status post_otlp(const OtlpEndpoint& endpoint, std::string_view body, int timeout_ms);

}  // namespace hadal::admin
