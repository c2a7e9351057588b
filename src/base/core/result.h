#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/core/check.h"

namespace hadal::core {

// What the caller should do. One code, one reaction; the text is for people and is never parsed.
enum class Code : uint8_t {
  kInvalidRequest,    // the client's fault, do not retry             -> 400, exit 1
  kContextTooLong,    // prompt + max_tokens over the limit           -> 400
  kNotFound,          // no such model, file, response                -> 404
  kUnauthorized,      //                                              -> 401
  kTooLarge,          // a body or file over its limit                -> 413
  kOverloaded,        // no blocks, queue full; back off and retry    -> 429
  kUnavailable,       // loading or draining                          -> 503
  kCancelled,         // the client went away
  kDeadlineExceeded,  // its time is over
  kPeerLost,          // another process of the fleet is gone
  kCorrupt,           // bytes that are not what they claim to be
  kDeviceLost,        // the accelerator failed
  kIo,                // the operating system refused
  kInternal,          // a fault of ours
};

std::string_view code_name(Code code);

// An expected failure: what to do (code), for whom (param: path of the field, "" if none), in words
// (message).
struct Error {
  Code code = Code::kInternal;
  std::string message;
  std::string param = {};
};

// A value or an Error. Member names are those of std::expected, so that moving there is mechanical.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & {
    HADAL_CHECK(has_value(), error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    HADAL_CHECK(has_value(), error_text());
    return std::get<0>(state_);
  }
  T&& value() && {
    HADAL_CHECK(has_value(), error_text());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::string_view error_text() const {
    return has_value() ? std::string_view() : std::get<1>(state_).message;
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const { HADAL_CHECK(has_value(), error_->message); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace hadal::core

#define HADAL_CONCAT_INNER(a, b) a##b
#define HADAL_CONCAT(a, b) HADAL_CONCAT_INNER(a, b)
#define HADAL_TRY_IMPL(result, decl, ...)                    \
  auto result = (__VA_ARGS__);                               \
  if (!result.has_value()) return std::move(result).error(); \
  decl = std::move(result).value()
// HADAL_TRY(Prompt prompt, encode(request)): declares `prompt`, or returns the error to the caller.
#define HADAL_TRY(decl, ...) \
  HADAL_TRY_IMPL(HADAL_CONCAT(hadal_try_, __COUNTER__), decl, __VA_ARGS__)
// HADAL_TRY_VOID(write(file)): for Result<void>.
#define HADAL_TRY_VOID(...)                                                 \
  do {                                                                      \
    if (auto hadal_try_void = (__VA_ARGS__); !hadal_try_void.has_value()) { \
      return std::move(hadal_try_void).error();                             \
    }                                                                       \
  } while (false)
