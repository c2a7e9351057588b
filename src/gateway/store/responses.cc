#include "gateway/store/responses.h"

#include <algorithm>

#include <fmt/format.h>

namespace hadal::store {
namespace {

constexpr const char* kFind =
    "SELECT tenant, id, previous, created, background, n_attempts, status, request, input, object "
    "FROM responses WHERE tenant = ? AND id = ? AND created > ?";

StoredResponse read(const Statement& row) {
  StoredResponse out;
  out.tenant = row.text(0);
  out.id = row.text(1);
  out.previous = row.text(2);
  out.created = row.integer(3);
  out.background = row.integer(4) != 0;
  out.n_attempts = static_cast<uint32_t>(row.integer(5));
  out.status = row.text(6);
  out.request = row.text(7);
  out.input = row.text(8);
  out.object = row.text(9);
  return out;
}

uint64_t bytes_of(const StoredResponse& r) {
  constexpr uint64_t kRow = 200;  // ids, numbers, index entries
  return kRow + r.request.size() + r.input.size() + r.object.size() +
         (r.events ? r.events->size() : 0);
}

}  // namespace

core::Result<Total> total_of(Database& db, std::string_view kind) {
  Statement row = db.query("SELECT n, bytes FROM totals WHERE kind = ?", kind);
  HADAL_TRY([[maybe_unused]] const bool found, row.next());
  return Total{static_cast<uint64_t>(row.integer(0)), static_cast<uint64_t>(row.integer(1))};
}

core::Status Responses::put(const StoredResponse& r) {
  const uint64_t bytes = bytes_of(r);
  if (bytes > limits_.max_response_bytes) {
    return core::Error{core::Code::kTooLarge,
                       fmt::format("the response has {} bytes and the store keeps {}; send "
                                   "\"store\": false, or raise store.max-bytes",
                                   bytes, limits_.max_response_bytes)};
  }
  HADAL_TRY_VOID(db_.run(
      "INSERT INTO responses(tenant, id, previous, created, background, n_attempts, status, "
      "request, input, object, bytes, events) VALUES(?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(tenant, "
      "id) DO UPDATE SET previous = excluded.previous, n_attempts = excluded.n_attempts, status = "
      "excluded.status, request = excluded.request, input = excluded.input, object = "
      "excluded.object, bytes = excluded.bytes, events = excluded.events",
      r.tenant, r.id, TextOrNull{r.previous}, r.created, r.background, r.n_attempts, r.status,
      TextOrNull{r.request}, r.input, r.object, bytes,
      r.events ? BlobOrNull(Blob{*r.events}) : BlobOrNull()));
  return trim();
}

core::Status Responses::update(const StoredResponse& r) {
  HADAL_TRY(const std::optional<StoredResponse> old, find(r.tenant, r.id));
  if (!old) return {};
  return put(r);
}

core::Status Responses::trim() {
  while (true) {
    HADAL_TRY(const Total total, total_of(db_, "responses"));
    const uint64_t n_over = total.n - std::min(total.n, limits_.max_responses);
    if (n_over == 0 && total.bytes <= limits_.max_response_bytes) return {};
    HADAL_TRY_VOID(db_.run(
        "DELETE FROM responses WHERE seq IN (SELECT seq FROM responses WHERE request IS NULL "
        "ORDER BY seq LIMIT ?)",
        std::max<uint64_t>(n_over, 1)));
    if (db_.n_changed() > 0) continue;
    return core::Error{core::Code::kUnavailable,
                       "the store is full of background responses that have not ended; wait, or "
                       "raise store.max-bytes"};
  }
}

core::Result<std::optional<StoredResponse>> Responses::find(std::string_view tenant,
                                                            std::string_view id) {
  Statement row = db_.query(kFind, tenant, id, limits_.now() - limits_.ttl_s);
  HADAL_TRY(const bool found, row.next());
  if (!found) return std::optional<StoredResponse>();
  return std::optional<StoredResponse>(read(row));
}

core::Result<std::optional<std::string>> Responses::events(std::string_view tenant,
                                                           std::string_view id) {
  Statement row = db_.query("SELECT events FROM responses WHERE tenant = ? AND id = ?", tenant, id);
  HADAL_TRY(const bool found, row.next());
  if (!found || row.is_null(0)) return std::optional<std::string>();
  return std::optional<std::string>(row.text(0));
}

core::Result<std::vector<StoredResponse>> Responses::chain(std::string_view tenant,
                                                           std::string_view id, uint64_t max_bytes,
                                                           Chain kind) {
  std::vector<StoredResponse> out;
  std::string next(id);
  uint64_t bytes = 0;
  while (!next.empty()) {
    HADAL_TRY(std::optional<StoredResponse> found, find(tenant, next));
    if (!found && kind == Chain::kWhatIsLeft && !out.empty()) break;
    if (!found) return core::Error{core::Code::kNotFound, "there is no such response", next};
    bytes += bytes_of(*found);
    if (bytes > max_bytes || out.size() == kLongestChain) {
      return core::Error{core::Code::kTooLarge,
                         fmt::format("the responses before this one have more than {} bytes, or "
                                     "are more than {}",
                                     max_bytes, kLongestChain)};
    }
    next = found->previous;
    out.push_back(std::move(*found));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

core::Result<bool> Responses::erase(std::string_view tenant, std::string_view id) {
  HADAL_TRY_VOID(db_.run("DELETE FROM responses WHERE tenant = ? AND id = ?", tenant, id));
  return db_.n_changed() > 0;
}

core::Result<std::vector<StoredResponse>> Responses::unfinished() {
  std::vector<StoredResponse> out;
  Statement row = db_.query(
      "SELECT tenant, id, previous, created, background, n_attempts, status, request, input, "
      "object FROM responses WHERE request IS NOT NULL ORDER BY seq");
  while (true) {
    HADAL_TRY(const bool found, row.next());
    if (!found) return out;
    out.push_back(read(row));
  }
}

core::Status Responses::forget_expired() {
  return db_.run("DELETE FROM responses WHERE created <= ? AND request IS NULL",
                 limits_.now() - limits_.ttl_s);
}

}  // namespace hadal::store
