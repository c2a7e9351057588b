#include "gateway/store/batches.h"

#include <array>
#include <limits>

#include <fmt/format.h>

namespace hadal::store {
namespace {

constexpr std::array<std::string_view, 8> kStates = {"validating", "in_progress", "finalizing",
                                                     "completed",  "failed",      "expired",
                                                     "cancelling", "cancelled"};

std::optional<int64_t> optional_at(const Statement& row, int column) {
  if (row.is_null(column)) return std::nullopt;
  return row.integer(column);
}

// Of SELECT *: the order of columns is that of the schema, which only grows at its end.
StoredBatch read_row(const Statement& row) {
  StoredBatch b;
  b.seq = row.integer(0);
  b.tenant = row.text(1);
  b.id = row.text(2);
  b.endpoint = row.text(3);
  b.input_file = row.text(4);
  b.output_file = row.text(5);
  b.error_file = row.text(6);
  b.window = row.text(7);
  b.metadata = row.text(8);
  b.output_ttl = optional_at(row, 9);
  for (size_t i = 0; i < kStates.size(); ++i) {
    if (kStates[i] == row.text(10)) b.state = static_cast<BatchState>(i);
  }
  b.errors = row.text(11);
  b.n_total = static_cast<uint64_t>(row.integer(12));
  b.n_completed = static_cast<uint64_t>(row.integer(13));
  b.n_failed = static_cast<uint64_t>(row.integer(14));
  b.created = row.integer(15);
  b.expires = row.integer(16);
  int column = 17;
  for (std::optional<int64_t>* at : {&b.in_progress, &b.finalizing, &b.completed, &b.failed,
                                     &b.expired, &b.cancelling, &b.cancelled}) {
    *at = optional_at(row, column++);
  }
  return b;
}

core::Result<StoredBatch> one(Statement row, std::string_view id) {
  HADAL_TRY(const bool found, row.next());
  if (!found)
    return core::Error{core::Code::kNotFound, fmt::format("there is no batch {}", id), "batch_id"};
  return read_row(row);
}

}  // namespace

std::string_view batch_state_name(BatchState state) {
  return kStates[static_cast<size_t>(state)];
}

core::Status Batches::create(const StoredBatch& b) {
  {
    Statement row = db_.query("SELECT count(*) FROM batches");
    HADAL_TRY([[maybe_unused]] const bool found, row.next());
    if (row.integer(0) >= kMostBatches) {
      return core::Error{core::Code::kOverloaded,
                         "the store holds as many batches as it may; the old ones go in time"};
    }
  }
  return db_.run(
      "INSERT INTO batches(tenant, id, endpoint, input_file, window, metadata, output_ttl, status, "
      "n_total, n_completed, n_failed, created, expires) VALUES(?,?,?,?,?,?,?,?,0,0,0,?,?)",
      b.tenant, b.id, b.endpoint, b.input_file, b.window, b.metadata, b.output_ttl,
      batch_state_name(b.state), b.created, b.expires);
}

core::Result<StoredBatch> Batches::find(std::string_view tenant, std::string_view id) {
  return one(db_.query("SELECT * FROM batches WHERE tenant = ? AND id = ?", tenant, id), id);
}

core::Result<StoredBatch> Batches::at(int64_t seq) {
  return one(db_.query("SELECT * FROM batches WHERE seq = ?", seq), "");
}

core::Result<Listed<StoredBatch>> Batches::list(std::string_view tenant, const Page& page) {
  int64_t begin = std::numeric_limits<int64_t>::max();
  if (!page.after.empty()) {
    auto after = find(tenant, page.after);
    if (!after && after.error().code == core::Code::kNotFound) {
      return core::Error{core::Code::kInvalidRequest, after.error().message, "after"};
    }
    if (!after) return after.error();
    begin = after->seq;
  }
  Statement row =
      db_.query("SELECT * FROM batches WHERE tenant = ? AND seq < ? ORDER BY seq DESC LIMIT ?",
                tenant, begin, page.limit + 1);
  Listed<StoredBatch> out;
  while (true) {
    HADAL_TRY(const bool found, row.next());
    if (!found) return out;
    if (out.entries.size() == page.limit) {
      out.has_more = true;
      return out;
    }
    out.entries.push_back(read_row(row));
  }
}

core::Result<std::vector<StoredBatch>> Batches::open_batches() {
  Statement row = db_.query(
      "SELECT * FROM batches WHERE status IN ('validating', 'in_progress', 'finalizing', "
      "'cancelling') "
      "ORDER BY seq");
  std::vector<StoredBatch> out;
  while (true) {
    HADAL_TRY(const bool found, row.next());
    if (!found) return out;
    out.push_back(read_row(row));
  }
}

core::Status Batches::update(const StoredBatch& b) {
  return db_.run(
      "UPDATE batches SET status = ?, errors = ?, output_file = ?, error_file = ?, n_total = ?, "
      "in_progress = ?, finalizing = ?, completed = ?, failed = ?, expired = ?, cancelling = ?, "
      "cancelled = ? WHERE seq = ?",
      batch_state_name(b.state), TextOrNull{b.errors}, TextOrNull{b.output_file},
      TextOrNull{b.error_file}, b.n_total, b.in_progress, b.finalizing, b.completed, b.failed,
      b.expired, b.cancelling, b.cancelled, b.seq);
}

core::Status Batches::add_results(int64_t seq, const std::vector<BatchResultLine>& results) {
  uint64_t n_completed = 0, n_failed = 0;
  for (const BatchResultLine& result : results) {
    HADAL_TRY_VOID(
        db_.run("INSERT INTO batch_results(batch, line, failed, text) VALUES(?,?,?,?) ON "
                "CONFLICT(batch, line) DO NOTHING",
                seq, result.line, result.failed, Blob{result.text}));
    if (db_.n_changed() == 0) continue;
    ++(result.failed ? n_failed : n_completed);
  }
  HADAL_TRY(const Total total, total_of(db_, "files"));
  if (total.bytes > limits_.max_file_bytes) {
    return core::Error{core::Code::kUnavailable,
                       "the store's limit of files is reached; delete some, or raise "
                       "store.max-file-bytes"};
  }
  return db_.run(
      "UPDATE batches SET n_completed = n_completed + ?, n_failed = n_failed + ? WHERE seq = ?",
      n_completed, n_failed, seq);
}

core::Result<std::vector<uint64_t>> Batches::lines_done(int64_t seq, uint64_t begin, uint64_t n) {
  Statement row = db_.query(
      "SELECT line FROM batch_results WHERE batch = ? AND line >= ? AND line < ? ORDER BY line",
      seq, begin, begin + n);
  std::vector<uint64_t> out;
  while (true) {
    HADAL_TRY(const bool found, row.next());
    if (!found) return out;
    out.push_back(static_cast<uint64_t>(row.integer(0)));
  }
}

core::Status Batches::make_result_files(StoredBatch& batch, const std::string& output_id,
                                        const std::string& error_id) {
  for (const bool errors : {false, true}) {
    uint64_t n = 0, bytes = 0;
    {
      Statement row = db_.query(
          "SELECT count(*), sum(length(text)) FROM batch_results WHERE batch = ? AND failed = ?",
          batch.seq, errors);
      HADAL_TRY([[maybe_unused]] const bool found, row.next());
      n = static_cast<uint64_t>(row.integer(0));
      bytes = static_cast<uint64_t>(row.integer(1));
    }
    if (n == 0) continue;
    std::string& id = errors ? batch.error_file : batch.output_file;
    id = errors ? error_id : output_id;
    const int64_t now = limits_.now();
    std::optional<int64_t> expires;
    if (batch.output_ttl) expires = now + *batch.output_ttl;
    HADAL_TRY_VOID(
        db_.run("INSERT INTO files(tenant, id, filename, purpose, created, expires, bytes, batch, "
                "errors) VALUES(?,?,?,'batch_output',?,?,?,?,?)",
                batch.tenant, id, fmt::format("{}_{}.jsonl", batch.id, errors ? "error" : "output"),
                now, expires, bytes, batch.seq, errors));
  }
  return {};
}

core::Status Batches::forget_expired() {
  constexpr const char* kFiles =
      "DELETE FROM files WHERE batch IN (SELECT seq FROM batches WHERE created <= ? AND status IN "
      "('completed', 'failed', 'expired', 'cancelled'))";
  constexpr const char* kBatches =
      "DELETE FROM batches WHERE created <= ? AND status IN ('completed', 'failed', 'expired', "
      "'cancelled')";
  const int64_t oldest = limits_.now() - limits_.ttl_s;
  HADAL_TRY_VOID(db_.run(kFiles, oldest));
  return db_.run(kBatches, oldest);
}

}  // namespace hadal::store
