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

struct StoredFile {
  std::string id = {}, filename = {}, purpose = {};
  int64_t created = 0;                  // seconds since 1970
  std::optional<int64_t> expires = {};  // likewise
  uint64_t bytes = 0;
};

// Files of all tenants; no method reaches into another tenant's. A file is bytes that a client sent
// or the results of a batch (results_of), which are not copied. Thread: the store's.
class Files {
 public:
  // Largest piece that is written or read at once.
  static constexpr size_t kChunkBytes = 256 << 10;

  static constexpr uint64_t kMostFiles = 100'000;

  Files(Database& db, const Limits& limits) : db_(db), limits_(limits) {}

  // kUnavailable when all files together would pass the limit, or are kMostFiles.
  core::Status put(std::string_view tenant, const StoredFile& file, std::string_view content);
  // kNotFound if there is none, or it has expired.
  core::Result<StoredFile> find(std::string_view tenant, std::string_view id);
  // `purpose` "": of every purpose.
  core::Result<Listed<StoredFile>> list(std::string_view tenant, std::string_view purpose,
                                        const Page& page);
  core::Status erase(std::string_view tenant, std::string_view id);

  // Where a reader stands: `offset` counts bytes of a client's file, and lines of batch results.
  struct Cursor {
    uint64_t offset = 0;
  };
  // The next piece; "" at the end. One of kChunkBytes at most, but a longer line of results comes
  // whole.
  core::Result<std::string> read(std::string_view tenant, std::string_view id, Cursor& cursor);

  core::Status forget_expired();

 private:
  Database& db_;
  const Limits& limits_;
};

}  // namespace hadal::store
