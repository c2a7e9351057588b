#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "base/core/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace hadal::store {

// Bytes that are no text.
struct Blob {
  std::string_view bytes;
};
using BlobOrNull = std::optional<Blob>;
// SQL's NULL for "".
struct TextOrNull {
  std::string_view text;
};

// One run of a prepared statement. Goes back to its Database when it is destroyed, and must be gone
// before the same SQL is run again.
class Statement {
 public:
  Statement(sqlite3* db, sqlite3_stmt* statement, core::Status prepared)
      : db_(db), statement_(statement), failed_(std::move(prepared)) {}
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  void bind(int index, std::string_view value);
  void bind(int index, TextOrNull value);
  void bind(int index, Blob value);
  void bind(int index, const BlobOrNull& value);  // nothing: NULL
  void bind(int index, int64_t value);
  void bind(int index, std::optional<int64_t> value);  // nothing: NULL

  // Goes to the next row; false behind the last one.
  core::Result<bool> next();
  // Columns of the row, from 0. Views live until next() or the end of the statement.
  std::string_view text(int column) const;
  int64_t integer(int column) const;
  bool is_null(int column) const;

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_;
  core::Status failed_;
};

// One SQLite connection that holds its file alone. Thread: its owner's; nothing is locked.
// Errors, of every method:
//   kUnavailable  the disk is full or refuses, or another process holds the file
//   kCorrupt      the file is no store, or was damaged
//   kInternal     a fault of ours
class Database {
 public:
  // `path` "": in memory. Otherwise WAL: what a commit acknowledged survives kill -9, a power cut
  // loses at most the last moments and never the file.
  static core::Result<Database> open(const std::string& path);
  Database(Database&& other) noexcept = default;
  Database& operator=(Database&&) = delete;

  template <typename... Args>
  Statement query(const char* sql, const Args&... args) {
    Statement statement = prepare(sql);
    int index = 0;
    (bind_one(statement, ++index, args), ...);
    return statement;
  }
  // For statements without rows.
  template <typename... Args>
  core::Status run(const char* sql, const Args&... args) {
    Statement statement = query(sql, args...);
    HADAL_TRY([[maybe_unused]] const bool row, statement.next());
    return {};
  }
  core::Status script(const char* sql);  // several statements, none with parameters
  int64_t n_changed() const;             // rows of the last run()
  int64_t last_row() const;

  // `work` in a transaction: committed if it returns no error, else as if it had not run.
  core::Status transaction(const std::function<core::Status()>& work);
  bool in_transaction() const;
  // The same inside a transaction. If the disk is full, an error may have ended the whole
  // transaction: in_transaction() says so.
  core::Status savepoint(const std::function<core::Status()>& work);

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Database(sqlite3* db) : db_(db) {}
  Statement prepare(const char* sql);
  core::Status open_file();
  template <typename T>
  static void bind_one(Statement& statement, int index, const T& value) {
    if constexpr (std::is_integral_v<T>) {
      statement.bind(index, static_cast<int64_t>(value));
    } else {
      statement.bind(index, value);
    }
  }

  std::unique_ptr<sqlite3, Close> db_;
  // By the address of the SQL text: all of it is literals.
  std::unordered_map<const char*, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;
};

}  // namespace hadal::store
