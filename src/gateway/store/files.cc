#include "gateway/store/files.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace hadal::store {
namespace {

core::Error no_file(std::string_view id) {
  return {core::Code::kNotFound, fmt::format("there is no file {}", id), "file_id"};
}

StoredFile read_row(const Statement& row) {
  StoredFile file;
  file.id = row.text(0);
  file.filename = row.text(1);
  file.purpose = row.text(2);
  file.created = row.integer(3);
  if (!row.is_null(4)) file.expires = row.integer(4);
  file.bytes = static_cast<uint64_t>(row.integer(5));
  return file;
}

}  // namespace

core::Status Files::put(std::string_view tenant, const StoredFile& file, std::string_view content) {
  HADAL_TRY(const Total total, total_of(db_, "files"));
  if (total.bytes + content.size() > limits_.max_file_bytes) {
    return core::Error{core::Code::kUnavailable,
                       fmt::format("the store holds {} bytes of files and may hold {}; delete "
                                   "some, or raise store.max-file-bytes",
                                   total.bytes, limits_.max_file_bytes),
                       "file"};
  }
  if (total.n >= kMostFiles) {
    return core::Error{core::Code::kUnavailable,
                       fmt::format("the store holds {} files; delete some", total.n), "file"};
  }
  HADAL_TRY_VOID(
      db_.run("INSERT INTO files(tenant, id, filename, purpose, created, bytes, errors) "
              "VALUES(?,?,?,?,?,?,0)",
              tenant, file.id, file.filename, file.purpose, file.created, content.size()));
  const int64_t seq = db_.last_row();
  if (file.expires)
    HADAL_TRY_VOID(db_.run("UPDATE files SET expires = ? WHERE seq = ?", *file.expires, seq));
  for (size_t at = 0; at < content.size(); at += kChunkBytes) {
    HADAL_TRY_VOID(db_.run("INSERT INTO file_chunks(file, offset, bytes) VALUES(?,?,?)", seq, at,
                           Blob{content.substr(at, kChunkBytes)}));
  }
  return {};
}

core::Result<StoredFile> Files::find(std::string_view tenant, std::string_view id) {
  Statement row = db_.query(
      "SELECT id, filename, purpose, created, expires, bytes FROM files WHERE tenant = ? AND id = "
      "? AND (expires IS NULL OR expires > ?)",
      tenant, id, limits_.now());
  HADAL_TRY(const bool found, row.next());
  if (!found) return no_file(id);
  return read_row(row);
}

core::Result<Listed<StoredFile>> Files::list(std::string_view tenant, std::string_view purpose,
                                             const Page& page) {
  int64_t begin = page.descending ? std::numeric_limits<int64_t>::max() : 0;
  if (!page.after.empty()) {
    Statement row =
        db_.query("SELECT seq FROM files WHERE tenant = ? AND id = ?", tenant, page.after);
    HADAL_TRY(const bool found, row.next());
    if (!found) {
      core::Error error = no_file(page.after);
      error.code = core::Code::kInvalidRequest;
      error.param = "after";
      return error;
    }
    begin = row.integer(0);
  }
  const int64_t now = limits_.now();
  Statement row =
      page.descending
          ? db_.query(
                "SELECT id, filename, purpose, created, expires, bytes FROM files WHERE "
                "tenant = ?1 AND (?2 = '' OR purpose = ?2) AND (expires IS NULL OR expires > "
                "?3) AND seq < ?4 ORDER BY seq DESC LIMIT ?5",
                tenant, purpose, now, begin, page.limit + 1)
          : db_.query(
                "SELECT id, filename, purpose, created, expires, bytes FROM files WHERE "
                "tenant = ?1 AND (?2 = '' OR purpose = ?2) AND (expires IS NULL OR expires > "
                "?3) AND seq > ?4 ORDER BY seq LIMIT ?5",
                tenant, purpose, now, begin, page.limit + 1);
  Listed<StoredFile> out;
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

core::Status Files::erase(std::string_view tenant, std::string_view id) {
  HADAL_TRY_VOID(
      db_.run("DELETE FROM batch_results WHERE (batch, failed) IN (SELECT batch, errors FROM files "
              "WHERE tenant = ? AND id = ? AND batch IS NOT NULL)",
              tenant, id));
  HADAL_TRY_VOID(db_.run("DELETE FROM files WHERE tenant = ? AND id = ?", tenant, id));
  if (db_.n_changed() == 0) return no_file(id);
  return {};
}

core::Result<std::string> Files::read(std::string_view tenant, std::string_view id,
                                      Cursor& cursor) {
  int64_t seq = 0, batch = 0, errors = 0;
  bool is_results = false;
  {
    Statement row =
        db_.query("SELECT seq, batch, errors FROM files WHERE tenant = ? AND id = ?", tenant, id);
    HADAL_TRY(const bool found, row.next());
    if (!found) return no_file(id);
    seq = row.integer(0);
    is_results = !row.is_null(1);
    batch = row.integer(1);
    errors = row.integer(2);
  }
  std::string out;
  if (!is_results) {
    Statement row = db_.query("SELECT bytes FROM file_chunks WHERE file = ? AND offset = ?", seq,
                              cursor.offset);
    HADAL_TRY(const bool found, row.next());
    if (found) out = row.text(0);
    cursor.offset += out.size();
    return out;
  }
  Statement row = db_.query(
      "SELECT line, text FROM batch_results WHERE batch = ? AND failed = ? AND line > ? ORDER BY "
      "line",
      batch, errors, cursor.offset);
  while (out.size() < kChunkBytes) {
    HADAL_TRY(const bool found, row.next());
    if (!found || (!out.empty() && out.size() + row.text(1).size() > kChunkBytes)) break;
    out += row.text(1);
    cursor.offset = static_cast<uint64_t>(row.integer(0));
  }
  return out;
}

core::Status Files::forget_expired() {
  const int64_t now = limits_.now();
  HADAL_TRY_VOID(
      db_.run("DELETE FROM batch_results WHERE (batch, failed) IN (SELECT batch, errors FROM files "
              "WHERE batch IS NOT NULL AND expires <= ?)",
              now));
  // A batch that runs keeps its input.
  return db_.run(
      "DELETE FROM files WHERE expires <= ? AND NOT EXISTS (SELECT 1 FROM batches WHERE tenant = "
      "files.tenant AND input_file = files.id AND status IN ('validating', 'in_progress', "
      "'finalizing', 'cancelling'))",
      now);
}

}  // namespace hadal::store
