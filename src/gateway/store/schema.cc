#include "gateway/store/schema.h"

#include <fmt/format.h>

namespace hadal::store {
namespace {

constexpr int64_t kApplicationId = 0x48414453;  // "HADS"
constexpr int64_t kVersion = 2;

// `seq` is the order of arrival. `totals` counts rows and bytes of what is bounded; triggers keep
// it, so that it is right after any rollback.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE totals(kind TEXT PRIMARY KEY, n INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO totals VALUES('responses', 0, 0), ('conversations', 0, 0), ('files', 0, 0);

-- request: the body of a background response, until it has ended.
CREATE TABLE responses(
  seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, previous TEXT,
  created INTEGER NOT NULL, background INTEGER NOT NULL, n_attempts INTEGER NOT NULL,
  status TEXT NOT NULL, request TEXT, input TEXT NOT NULL, object TEXT NOT NULL,
  bytes INTEGER NOT NULL, UNIQUE(tenant, id));
CREATE INDEX responses_created ON responses(created);
CREATE INDEX responses_unfinished ON responses(seq) WHERE request IS NOT NULL;
CREATE TRIGGER responses_added AFTER INSERT ON responses BEGIN
  UPDATE totals SET n = n + 1, bytes = bytes + new.bytes WHERE kind = 'responses'; END;
CREATE TRIGGER responses_removed AFTER DELETE ON responses BEGIN
  UPDATE totals SET n = n - 1, bytes = bytes - old.bytes WHERE kind = 'responses'; END;
CREATE TRIGGER responses_changed AFTER UPDATE OF bytes ON responses BEGIN
  UPDATE totals SET bytes = bytes + new.bytes - old.bytes WHERE kind = 'responses'; END;

CREATE TABLE conversations(
  seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, created INTEGER NOT NULL,
  used INTEGER NOT NULL, metadata TEXT NOT NULL, bytes INTEGER NOT NULL, UNIQUE(tenant, id));
CREATE INDEX conversations_used ON conversations(used);
CREATE TABLE conversation_items(
  seq INTEGER PRIMARY KEY, conversation INTEGER NOT NULL REFERENCES conversations(seq) ON DELETE CASCADE,
  id TEXT NOT NULL, item BLOB NOT NULL, UNIQUE(conversation, id));
CREATE TRIGGER conversations_added AFTER INSERT ON conversations BEGIN
  UPDATE totals SET n = n + 1, bytes = bytes + new.bytes WHERE kind = 'conversations'; END;
CREATE TRIGGER conversations_removed AFTER DELETE ON conversations BEGIN
  UPDATE totals SET n = n - 1, bytes = bytes - old.bytes WHERE kind = 'conversations'; END;
CREATE TRIGGER conversations_changed AFTER UPDATE OF bytes ON conversations BEGIN
  UPDATE totals SET bytes = bytes + new.bytes - old.bytes WHERE kind = 'conversations'; END;
CREATE TRIGGER conversation_items_added AFTER INSERT ON conversation_items BEGIN
  UPDATE conversations SET bytes = bytes + length(new.item) WHERE seq = new.conversation; END;
CREATE TRIGGER conversation_items_removed AFTER DELETE ON conversation_items BEGIN
  UPDATE conversations SET bytes = bytes - length(old.item) WHERE seq = old.conversation; END;

-- A file is its chunks, or (batch not NULL) the results of a batch: those with errors = failed.
CREATE TABLE files(
  seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, filename TEXT NOT NULL,
  purpose TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER, bytes INTEGER NOT NULL,
  batch INTEGER, errors INTEGER NOT NULL, UNIQUE(tenant, id));
CREATE INDEX files_expire ON files(expires) WHERE expires IS NOT NULL;
CREATE TABLE file_chunks(
  file INTEGER NOT NULL REFERENCES files(seq) ON DELETE CASCADE, offset INTEGER NOT NULL,
  bytes BLOB NOT NULL, PRIMARY KEY(file, offset));
CREATE TRIGGER files_added AFTER INSERT ON files BEGIN
  UPDATE totals SET n = n + 1 WHERE kind = 'files'; END;
CREATE TRIGGER files_removed AFTER DELETE ON files BEGIN
  UPDATE totals SET n = n - 1 WHERE kind = 'files'; END;
CREATE TRIGGER file_chunks_added AFTER INSERT ON file_chunks BEGIN
  UPDATE totals SET bytes = bytes + length(new.bytes) WHERE kind = 'files'; END;
CREATE TRIGGER file_chunks_removed AFTER DELETE ON file_chunks BEGIN
  UPDATE totals SET bytes = bytes - length(old.bytes) WHERE kind = 'files'; END;

CREATE TABLE batches(
  seq INTEGER PRIMARY KEY, tenant TEXT NOT NULL, id TEXT NOT NULL, endpoint TEXT NOT NULL,
  input_file TEXT NOT NULL, output_file TEXT, error_file TEXT, window TEXT NOT NULL,
  metadata TEXT NOT NULL, output_ttl INTEGER, status TEXT NOT NULL, errors TEXT,
  n_total INTEGER NOT NULL, n_completed INTEGER NOT NULL, n_failed INTEGER NOT NULL,
  created INTEGER NOT NULL, expires INTEGER NOT NULL, in_progress INTEGER, finalizing INTEGER,
  completed INTEGER, failed INTEGER, expired INTEGER, cancelling INTEGER, cancelled INTEGER,
  UNIQUE(tenant, id));
CREATE INDEX batches_open ON batches(seq)
  WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
-- One row a line: a line cannot have two results.
CREATE TABLE batch_results(
  batch INTEGER NOT NULL REFERENCES batches(seq) ON DELETE CASCADE, line INTEGER NOT NULL,
  failed INTEGER NOT NULL, text BLOB NOT NULL, PRIMARY KEY(batch, line));
CREATE TRIGGER batch_results_added AFTER INSERT ON batch_results BEGIN
  UPDATE totals SET bytes = bytes + length(new.text) WHERE kind = 'files'; END;
CREATE TRIGGER batch_results_removed AFTER DELETE ON batch_results BEGIN
  UPDATE totals SET bytes = bytes - length(old.text) WHERE kind = 'files'; END;
)sql";

// events: what a streamed response was streamed as (NULL: it was not), see StoredResponse.
constexpr const char* kVersion2 = "ALTER TABLE responses ADD COLUMN events BLOB";

core::Result<int64_t> pragma(Database& db, const char* sql) {
  Statement statement = db.query(sql);
  HADAL_TRY(const bool row, statement.next());
  return row ? statement.integer(0) : 0;
}

}  // namespace

core::Status prepare_schema(Database& db) {
  HADAL_TRY(const int64_t version, pragma(db, "PRAGMA user_version"));
  HADAL_TRY(const int64_t application, pragma(db, "PRAGMA application_id"));
  HADAL_TRY(const int64_t n_tables, pragma(db, "SELECT count(*) FROM sqlite_master"));
  if (n_tables > 0 && application != kApplicationId) {
    return core::Error{core::Code::kCorrupt,
                       "the file belongs to another program; give store.path a new name"};
  }
  if (version > kVersion) {
    return core::Error{
        core::Code::kCorrupt,
        fmt::format("the store has version {} and this program reads up to {}; use a newer program "
                    "or another store.path",
                    version, kVersion)};
  }
  if (version == kVersion) return {};
  return db.transaction([&]() -> core::Status {
    if (version < 1) HADAL_TRY_VOID(db.script(kVersion1));
    HADAL_TRY_VOID(db.script(kVersion2));
    return db.script("PRAGMA application_id=1212236883; PRAGMA user_version=2");
  });
}

}  // namespace hadal::store
