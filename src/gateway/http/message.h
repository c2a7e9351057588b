#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/metrics/trace.h"

namespace hadal::http {

struct Header {
  std::string name;  // lower case in requests; as given in responses
  std::string value;
};

// One HTTP request, complete: the body has arrived and is within its limit.
struct Request {
  std::string method;  // "GET", ...
  std::string path;    // percent-decoded, without the query
  std::string query;   // as sent, without '?'
  std::vector<Header> headers;
  std::string body;
  std::string peer;  // address of the client, without the port
  bool peer_is_loopback = false;
  std::string
      request_id;  // X-Request-Id if it was well formed, else made here; echoed in the response
  std::vector<std::pair<std::string, std::string>>
      path_params;  // {name} parts of the route, set by Router
  // The trace that this request is a part of; `span` is this server's. With a well-formed
  // traceparent header, or when ServerConfig::new_trace began one.
  std::optional<metrics::TraceContext> trace;
  uint64_t trace_parent = 0;  // the caller's span; 0: the trace begins here

  // Value of the first header of that (lower-case) name, or "".
  std::string_view header(std::string_view name) const;
  // Value of a query parameter, percent-decoded.
  std::optional<std::string> query_param(std::string_view name) const;
  std::string_view path_param(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<Header> headers;
  std::string body;
};

std::string_view status_text(int status);

// Lower-case hexadecimal with at least `n_digits` digits; decimal. Both are on the path of every
// event.
void append_hex(std::string& out, uint64_t value, uint32_t n_digits = 1);
void append_decimal(std::string& out, uint64_t value);

// %XX decoded; nullopt for a malformed escape or a NUL byte. '+' is left alone unless
// `plus_is_space`.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);

}  // namespace hadal::http
