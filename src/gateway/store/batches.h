#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/result.h"
#include "gateway/store/conversations.h"
#include "gateway/store/database.h"
#include "gateway/store/limits.h"

namespace hadal::store {

enum class BatchState : uint8_t {
  kValidating,
  kInProgress,
  kFinalizing,
  kCompleted,
  kFailed,
  kExpired,
  kCancelling,
  kCancelled,
};
std::string_view batch_state_name(BatchState state);  // as the API spells it
constexpr bool is_open(BatchState state) {
  return state == BatchState::kValidating || state == BatchState::kInProgress ||
         state == BatchState::kFinalizing || state == BatchState::kCancelling;
}

struct StoredBatch {
  int64_t seq = 0;  // 0: not stored yet
  std::string tenant = {}, id = {}, endpoint = {}, input_file = {}, output_file = {},
              error_file = {};
  std::string window = {};                 // "24h"
  std::string metadata = "null";           // JSON
  std::optional<int64_t> output_ttl = {};  // seconds that the result files live
  BatchState state = BatchState::kValidating;
  std::string errors = {};  // JSON list of what is wrong with the input file, or ""
  uint64_t n_total = 0, n_completed = 0, n_failed = 0;
  int64_t created = 0, expires = 0;  // seconds since 1970, as all that follow
  std::optional<int64_t> in_progress = {}, finalizing = {}, completed = {}, failed = {},
                         expired = {}, cancelling = {}, cancelled = {};
};

struct BatchResultLine {
  uint64_t line = 0;  // of the input file, from 1
  bool failed = false;
  std::string text;  // with its newline
};

// Batches of all tenants. The methods that clients' requests come to take a tenant, and reach into
// no other one's; those that run batches take `seq`. Thread: the store's.
class Batches {
 public:
  Batches(Database& db, const Limits& limits) : db_(db), limits_(limits) {}

  static constexpr int64_t kMostBatches = 10'000;
  // kOverloaded when there are kMostBatches.
  core::Status create(const StoredBatch& batch);
  core::Result<StoredBatch> find(std::string_view tenant, std::string_view id);  // or kNotFound
  core::Result<Listed<StoredBatch>> list(std::string_view tenant, const Page& page);

  core::Result<std::vector<StoredBatch>> open_batches();  // those that have not ended, oldest first
  core::Result<StoredBatch> at(int64_t seq);
  // Everything but identity and counts of results.
  core::Status update(const StoredBatch& batch);
  // Adds results and their counts; a line that has one keeps it. kUnavailable when the files'
  // limit is reached.
  core::Status add_results(int64_t seq, const std::vector<BatchResultLine>& results);
  // Lines of [begin, begin + n) that have a result.
  core::Result<std::vector<uint64_t>> lines_done(int64_t seq, uint64_t begin, uint64_t n);
  // Makes the files of the results, of names output_id and error_id; none for results that there
  // are none of. Sets output_file and error_file of `batch`, to be stored with update().
  core::Status make_result_files(StoredBatch& batch, const std::string& output_id,
                                 const std::string& error_id);
  // Those that ended, at the age at which responses go too, with their results.
  core::Status forget_expired();

 private:
  Database& db_;
  const Limits& limits_;
};

}  // namespace hadal::store
