#include "gateway/store/database.h"

#include <utility>

#include <fmt/format.h>
#include <sqlite3.h>

namespace hadal::store {
namespace {

core::Error error_of(sqlite3* db, int code) {
  const std::string why = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_FULL:
      return {core::Code::kUnavailable, "the store is full: no space is left on its disk"};
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      return {core::Code::kUnavailable,
              fmt::format("the store cannot use its disk ({}); it may be full or read-only", why)};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {core::Code::kUnavailable,
              "another process holds the store; give each server its own store.path"};
    case SQLITE_TOOBIG:
      return {core::Code::kTooLarge, "too large to be stored"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {core::Code::kCorrupt,
              fmt::format("the store is damaged, or no store ({}); move the file away", why)};
    default:
      return {core::Code::kInternal, fmt::format("the store failed: {}", why)};
  }
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : db_(other.db_),
      statement_(std::exchange(other.statement_, nullptr)),
      failed_(std::move(other.failed_)) {}

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

// A failed bind leaves NULL in place, which would be stored: next() refuses.
void Statement::bind(int index, std::string_view value) {
  if (statement_ == nullptr) return;
  const char* data = value.data() == nullptr ? "" : value.data();  // "" is no NULL
  const int code =
      sqlite3_bind_text64(statement_, index, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) failed_ = error_of(db_, code);
}

void Statement::bind(int index, TextOrNull value) {
  if (!value.text.empty()) bind(index, value.text);
}

void Statement::bind(int index, Blob value) {
  if (statement_ == nullptr) return;
  const int code = sqlite3_bind_blob64(statement_, index, value.bytes.data(), value.bytes.size(),
                                       SQLITE_TRANSIENT);
  if (code != SQLITE_OK) failed_ = error_of(db_, code);
}

void Statement::bind(int index, const BlobOrNull& value) {
  if (value) return bind(index, *value);
  bind(index, std::optional<int64_t>());
}

void Statement::bind(int index, int64_t value) {
  if (statement_ == nullptr) return;
  const int code = sqlite3_bind_int64(statement_, index, value);
  if (code != SQLITE_OK) failed_ = error_of(db_, code);
}

void Statement::bind(int index, std::optional<int64_t> value) {
  if (value) bind(index, *value);
}

core::Result<bool> Statement::next() {
  if (!failed_) return failed_.error();
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return error_of(db_, code);
}

std::string_view Statement::text(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string_view() : std::string_view(data, static_cast<size_t>(size));
}
int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}
bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

void Database::Close::operator()(sqlite3* db) const {
  sqlite3_close_v2(db);
}
void Database::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

core::Result<Database> Database::open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(
      path.empty() ? ":memory:" : path.c_str(), &raw,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
      nullptr);
  Database db(raw);
  if (code != SQLITE_OK) return error_of(raw, code);
  sqlite3_busy_timeout(raw, 2000);
  if (!path.empty()) HADAL_TRY_VOID(db.open_file());
  HADAL_TRY_VOID(db.script("PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY"));
  return db;
}

// The order matters: locking_mode before the first use of WAL, so that its index is in memory and
// not in a shared file; auto_vacuum before the first table.
core::Status Database::open_file() {
  return script(
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; "
      "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=16777216; "
      "BEGIN IMMEDIATE; COMMIT");
}

Statement Database::prepare(const char* sql) {
  auto& kept = statements_[sql];
  if (kept != nullptr) return {db_.get(), kept.get(), {}};
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  kept.reset(statement);
  if (code != SQLITE_OK) return {db_.get(), nullptr, error_of(db_.get(), code)};
  return {db_.get(), statement, {}};
}

core::Status Database::script(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return error_of(db_.get(), code);
  return {};
}

int64_t Database::n_changed() const {
  return sqlite3_changes64(db_.get());
}
int64_t Database::last_row() const {
  return sqlite3_last_insert_rowid(db_.get());
}

bool Database::in_transaction() const {
  return sqlite3_get_autocommit(db_.get()) == 0;
}

core::Status Database::transaction(const std::function<core::Status()>& work) {
  HADAL_TRY_VOID(run("BEGIN IMMEDIATE"));
  core::Status done = work();
  if (done) done = run("COMMIT");
  // A full disk may have ended the transaction already.
  if (!done && in_transaction()) {
    if (const core::Status undone = run("ROLLBACK"); !undone) return undone;
  }
  return done;
}

core::Status Database::savepoint(const std::function<core::Status()>& work) {
  HADAL_TRY_VOID(run("SAVEPOINT inner_work"));
  core::Status done = work();
  if (!done) {
    if (!in_transaction()) return done;
    HADAL_TRY_VOID(run("ROLLBACK TO inner_work"));
  }
  if (const core::Status released = run("RELEASE inner_work"); !released) return released;
  return done;
}

}  // namespace hadal::store
