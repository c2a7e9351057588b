#pragma once

#include <cstdint>
#include <functional>

#include "base/core/result.h"
#include "gateway/store/database.h"

namespace hadal::store {

// What a store may grow to. The oldest responses and conversations make room for new ones; files
// and batch results, which a client put there or waits for, are refused instead.
struct Limits {
  uint64_t max_responses = 100'000;
  uint64_t max_response_bytes = uint64_t{4} << 30;      // of all responses together
  uint64_t max_conversation_bytes = uint64_t{1} << 30;  // of all conversations together
  uint64_t max_file_bytes = uint64_t{8} << 30;          // of all files and batch results together
  int64_t ttl_s = 30LL * 86400;  // of responses, and of conversations since their last use
  std::function<int64_t()> now;  // seconds since 1970
};

struct Total {
  uint64_t n = 0, bytes = 0;
};
// `kind`: "responses", "conversations" or "files".
core::Result<Total> total_of(Database& db, std::string_view kind);

}  // namespace hadal::store
