#include "base/core/result.h"

namespace hadal::core {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidRequest:
      return "invalid_request";
    case Code::kContextTooLong:
      return "context_too_long";
    case Code::kNotFound:
      return "not_found";
    case Code::kUnauthorized:
      return "unauthorized";
    case Code::kTooLarge:
      return "too_large";
    case Code::kOverloaded:
      return "overloaded";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kPeerLost:
      return "peer_lost";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kDeviceLost:
      return "device_lost";
    case Code::kIo:
      return "io";
    case Code::kInternal:
      return "internal";
  }
  return "internal";
}

}  // namespace hadal::core
