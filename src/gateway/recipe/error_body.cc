#include "gateway/recipe/error_body.h"

#include <string_view>

#include "gateway/recipe/json_value.h"

namespace hadal::recipe {

namespace {

struct ErrorWords {
  int status;
  std::string_view openai_type, openai_code, anthropic_type;
};

ErrorWords words_of(core::Code code) {
  switch (code) {
    case core::Code::kInvalidRequest:
      return {400, "invalid_request_error", "invalid_request_error", "invalid_request_error"};
    case core::Code::kContextTooLong:
      return {400, "invalid_request_error", "context_length_exceeded", "invalid_request_error"};
    case core::Code::kUnauthorized:
      return {401, "authentication_error", "invalid_api_key", "authentication_error"};
    case core::Code::kNotFound:
      return {404, "invalid_request_error", "not_found", "not_found_error"};
    case core::Code::kTooLarge:
      return {413, "invalid_request_error", "request_too_large", "request_too_large"};
    case core::Code::kOverloaded:
      return {429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"};
    case core::Code::kCancelled:
      return {499, "invalid_request_error", "cancelled", "api_error"};
    case core::Code::kUnavailable:
      return {503, "service_unavailable", "unavailable", "overloaded_error"};
    case core::Code::kDeadlineExceeded:
      return {504, "timeout_error", "deadline_exceeded", "timeout_error"};
    default:
      return {500, "internal_error", "internal_error", "api_error"};
  }
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  append_json_string(out, name);
  out += ':';
  append_json_string(out, value);
}

}  // namespace

int http_status(core::Code code) {
  return words_of(code).status;
}

std::string error_body(const core::Error& error, Api api, bool compat) {
  const ErrorWords words = words_of(error.code);
  const bool anthropic = api == Api::kMessages && !compat;
  std::string message = error.message;
  if (anthropic && !error.param.empty()) {
    const std::string quoted = "`" + error.param + "` ";
    if (message.starts_with(quoted)) message.erase(0, quoted.size());
    if (!message.starts_with(error.param)) message = error.param + ": " + message;
  }
  std::string out = anthropic ? "{\"type\":\"error\",\"error\":{" : "{\"error\":{";
  if (anthropic) {
    append_field(out, "type", words.anthropic_type);
    out += ',';
    append_field(out, "message", message);
    return out += "}}";
  }
  append_field(out, "message", message);
  out += ',';
  append_field(out, "type", compat ? std::string_view("invalid_request_error") : words.openai_type);
  out += ",\"param\":";
  if (compat || error.param.empty()) {
    out += "null";
  } else {
    append_json_string(out, error.param);
  }
  out += ',';
  append_field(out, "code", compat ? std::string_view("invalid_request_error") : words.openai_code);
  return out += "}}";
}

}  // namespace hadal::recipe
