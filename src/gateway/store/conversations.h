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

struct StoredConversation {
  std::string id;
  int64_t created = 0;        // seconds since 1970
  std::string metadata = {};  // JSON object
};

struct StoredItem {
  std::string id;
  std::string json;  // an item of the Responses API, with that id
};

// A part of a list, as the APIs page it.
struct Page {
  std::string after = {};  // id of the entry before the first; "": from the start
  uint32_t limit = 20;
  bool descending = true;
};

template <typename T>
struct Listed {
  std::vector<T> entries;
  bool has_more = false;
};

// Conversations of all tenants: lists of items that grow. No method reaches into another tenant's.
// Methods on one that does not exist answer kNotFound. Thread: the store's.
class Conversations {
 public:
  Conversations(Database& db, const Limits& limits) : db_(db), limits_(limits) {}

  core::Status create(std::string_view tenant, const StoredConversation& conversation);
  core::Result<StoredConversation> find(std::string_view tenant, std::string_view id);
  core::Status set_metadata(std::string_view tenant, std::string_view id, std::string_view json);
  core::Status erase(std::string_view tenant, std::string_view id);

  // Adds items at the end, all or none; one whose id is there already is an error, or left out if
  // `skip_known`. kTooLarge when the conversation would pass a quarter of the
  // store's limit. Those not used for longest make room.
  core::Status append(std::string_view tenant, std::string_view id,
                      const std::vector<StoredItem>& items, bool skip_known = false);
  core::Result<Listed<StoredItem>> items(std::string_view tenant, std::string_view id,
                                         const Page& page);
  // All items in order; kTooLarge if they are more than `max_bytes`.
  core::Result<std::vector<StoredItem>> all_items(std::string_view tenant, std::string_view id,
                                                  uint64_t max_bytes);
  core::Result<StoredItem> item(std::string_view tenant, std::string_view id,
                                std::string_view item_id);
  core::Status erase_item(std::string_view tenant, std::string_view id, std::string_view item_id);
  core::Status forget_expired();

 private:
  struct Place {
    int64_t seq = 0;
    uint64_t bytes = 0;
  };
  // Those not used for longest make room, but for this one.
  core::Status trim(int64_t kept);
  core::Result<Place> place_of(std::string_view tenant, std::string_view id);

  Database& db_;
  const Limits& limits_;
};

}  // namespace hadal::store
