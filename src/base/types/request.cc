#include "base/types/request.h"

namespace hadal::types {

std::string_view cache_miss_name(CacheMiss miss) {
  switch (miss) {
    case CacheMiss::kNone:
      return "none";
    case CacheMiss::kCold:
      return "cold";
    case CacheMiss::kDiverged:
      return "diverged";
    case CacheMiss::kEvicted:
      return "evicted";
    case CacheMiss::kImage:
      return "image";
    case CacheMiss::kDisabled:
      return "disabled";
  }
  return "";
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContentFilter:
      return "content_filter";
    case FinishReason::kCancelled:
      return "abort";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

}  // namespace hadal::types
