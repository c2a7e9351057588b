#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/store/database.h"
#include "gateway/store/limits.h"

namespace hadal::store {

// One response as it is kept. JSON is text here: nobody below gateway/openai reads it.
struct StoredResponse {
  std::string tenant = {}, id = {};
  std::string previous = {};  // id of the response that it goes on from, "" if none
  int64_t created = 0;        // seconds since 1970
  bool background = false;
  uint32_t n_attempts = 0;   // background: how often its generation was begun
  std::string status = {};   // "queued", "in_progress", "completed", ...
  std::string request = {};  // background and not ended: the body; else ""
  std::string input = {};    // JSON list of its own input items
  std::string object = {};   // the Responses object as JSON
  // Nothing: it was not streamed. Else its events in a form of gateway/serving, "" until it has
  // ended or if they are lost. Read by events() only.
  std::optional<std::string> events = {};
};

// Responses of all tenants; no method reaches into another tenant's. Thread: the store's.
class Responses {
 public:
  Responses(Database& db, const Limits& limits) : db_(db), limits_(limits) {}

  // Adds it, or replaces the one of that tenant and id. Forgets the oldest that have ended, so that
  // the limits hold again. kTooLarge if it alone is over them.
  core::Status put(const StoredResponse& response);
  // Replaces it if it is still there: a client may have deleted it meanwhile.
  core::Status update(const StoredResponse& response);
  core::Result<std::optional<StoredResponse>> find(std::string_view tenant, std::string_view id);
  // StoredResponse::events of one that find() has found.
  core::Result<std::optional<std::string>> events(std::string_view tenant, std::string_view id);
  // `id` and all that it goes on from, oldest first. kNotFound with the id that is missing as
  // `param` (with kWhatIsLeft only if that is `id`; else the chain begins behind it); kTooLarge if
  // their bytes are more than `max_bytes` or they are more than kLongestChain.
  enum class Chain : uint8_t { kWhole, kWhatIsLeft };
  core::Result<std::vector<StoredResponse>> chain(std::string_view tenant, std::string_view id,
                                                  uint64_t max_bytes, Chain kind = Chain::kWhole);
  // False: there is none.
  core::Result<bool> erase(std::string_view tenant, std::string_view id);
  // Background responses that had not ended when the last process did, oldest first.
  core::Result<std::vector<StoredResponse>> unfinished();
  core::Status forget_expired();

  static constexpr size_t kLongestChain = 10'000;

 private:
  core::Status trim();

  Database& db_;
  const Limits& limits_;
};

}  // namespace hadal::store
