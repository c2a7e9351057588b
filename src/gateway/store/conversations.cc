#include "gateway/store/conversations.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace hadal::store {
namespace {

constexpr uint64_t kRowBytes = 200;

core::Error no_conversation(std::string_view id) {
  return {core::Code::kNotFound, fmt::format("there is no conversation {}", id), "conversation"};
}

}  // namespace

core::Status Conversations::create(std::string_view tenant, const StoredConversation& c) {
  HADAL_TRY_VOID(db_.run(
      "INSERT INTO conversations(tenant, id, created, used, metadata, bytes) VALUES(?,?,?,?,?,?)",
      tenant, c.id, c.created, limits_.now(), c.metadata, kRowBytes + c.metadata.size()));
  return trim(db_.last_row());
}

core::Status Conversations::trim(int64_t kept) {
  while (true) {
    HADAL_TRY(const Total total, total_of(db_, "conversations"));
    if (total.bytes <= limits_.max_conversation_bytes) return {};
    HADAL_TRY_VOID(
        db_.run("DELETE FROM conversations WHERE seq = (SELECT seq FROM conversations WHERE seq != "
                "? ORDER BY used, seq LIMIT 1)",
                kept));
    if (db_.n_changed() == 0) return {};
  }
}

core::Result<StoredConversation> Conversations::find(std::string_view tenant, std::string_view id) {
  Statement row = db_.query(
      "SELECT created, metadata FROM conversations WHERE tenant = ? AND id = ? AND used > ?",
      tenant, id, limits_.now() - limits_.ttl_s);
  HADAL_TRY(const bool found, row.next());
  if (!found) return no_conversation(id);
  return StoredConversation{std::string(id), row.integer(0), std::string(row.text(1))};
}

core::Result<Conversations::Place> Conversations::place_of(std::string_view tenant,
                                                           std::string_view id) {
  Statement row =
      db_.query("SELECT seq, bytes FROM conversations WHERE tenant = ? AND id = ? AND used > ?",
                tenant, id, limits_.now() - limits_.ttl_s);
  HADAL_TRY(const bool found, row.next());
  if (!found) return no_conversation(id);
  return Place{row.integer(0), static_cast<uint64_t>(row.integer(1))};
}

core::Status Conversations::set_metadata(std::string_view tenant, std::string_view id,
                                         std::string_view json) {
  HADAL_TRY(const Place place, place_of(tenant, id));
  return db_.run(
      "UPDATE conversations SET bytes = bytes + ? - length(CAST(metadata AS BLOB)), metadata = ?, "
      "used = ? WHERE seq = ?",
      json.size(), json, limits_.now(), place.seq);
}

core::Status Conversations::erase(std::string_view tenant, std::string_view id) {
  HADAL_TRY(const Place place, place_of(tenant, id));
  return db_.run("DELETE FROM conversations WHERE seq = ?", place.seq);
}

core::Status Conversations::append(std::string_view tenant, std::string_view id,
                                   const std::vector<StoredItem>& items, bool skip_known) {
  HADAL_TRY(const Place place, place_of(tenant, id));
  uint64_t bytes = place.bytes;
  for (const StoredItem& item : items) bytes += item.json.size();
  if (bytes > limits_.max_conversation_bytes / 4) {
    return core::Error{core::Code::kTooLarge,
                       fmt::format("the conversation would have {} bytes and may have {}; begin a "
                                   "new one",
                                   bytes, limits_.max_conversation_bytes / 4),
                       "conversation"};
  }
  for (const StoredItem& item : items) {
    HADAL_TRY_VOID(
        db_.run("INSERT INTO conversation_items(conversation, id, item) VALUES(?,?,?) ON "
                "CONFLICT(conversation, id) DO NOTHING",
                place.seq, item.id, Blob{item.json}));
    if (skip_known || db_.n_changed() > 0) continue;
    return core::Error{core::Code::kInvalidRequest,
                       fmt::format("the conversation has an item {} already", item.id), "items"};
  }
  HADAL_TRY_VOID(
      db_.run("UPDATE conversations SET used = ? WHERE seq = ?", limits_.now(), place.seq));
  return trim(place.seq);
}

core::Result<Listed<StoredItem>> Conversations::items(std::string_view tenant, std::string_view id,
                                                      const Page& page) {
  HADAL_TRY(const Place place, place_of(tenant, id));
  int64_t begin = page.descending ? std::numeric_limits<int64_t>::max() : 0;
  if (!page.after.empty()) {
    Statement row =
        db_.query("SELECT seq FROM conversation_items WHERE conversation = ? AND id = ?", place.seq,
                  page.after);
    HADAL_TRY(const bool found, row.next());
    if (!found)
      return core::Error{core::Code::kInvalidRequest,
                         fmt::format("the conversation has no item {}", page.after), "after"};
    begin = row.integer(0);
  }
  Statement row =
      page.descending
          ? db_.query(
                "SELECT id, item FROM conversation_items WHERE conversation = ? AND seq < ? "
                "ORDER BY seq DESC LIMIT ?",
                place.seq, begin, page.limit + 1)
          : db_.query(
                "SELECT id, item FROM conversation_items WHERE conversation = ? AND seq > ? "
                "ORDER BY seq LIMIT ?",
                place.seq, begin, page.limit + 1);
  Listed<StoredItem> out;
  while (true) {
    HADAL_TRY(const bool found, row.next());
    if (!found) return out;
    if (out.entries.size() == page.limit) {
      out.has_more = true;
      return out;
    }
    out.entries.push_back({std::string(row.text(0)), std::string(row.text(1))});
  }
}

core::Result<std::vector<StoredItem>> Conversations::all_items(std::string_view tenant,
                                                               std::string_view id,
                                                               uint64_t max_bytes) {
  HADAL_TRY(const Place place, place_of(tenant, id));
  if (place.bytes > max_bytes) {
    return core::Error{core::Code::kTooLarge,
                       fmt::format("the conversation has {} bytes and a request may have {}",
                                   place.bytes, max_bytes),
                       "conversation"};
  }
  Statement row = db_.query(
      "SELECT id, item FROM conversation_items WHERE conversation = ? ORDER BY seq", place.seq);
  std::vector<StoredItem> out;
  while (true) {
    HADAL_TRY(const bool found, row.next());
    if (!found) return out;
    out.push_back({std::string(row.text(0)), std::string(row.text(1))});
  }
}

core::Result<StoredItem> Conversations::item(std::string_view tenant, std::string_view id,
                                             std::string_view item_id) {
  HADAL_TRY(const Place place, place_of(tenant, id));
  Statement row = db_.query("SELECT item FROM conversation_items WHERE conversation = ? AND id = ?",
                            place.seq, item_id);
  HADAL_TRY(const bool found, row.next());
  if (!found) {
    return core::Error{core::Code::kNotFound,
                       fmt::format("the conversation has no item {}", item_id), "item_id"};
  }
  return StoredItem{std::string(item_id), std::string(row.text(0))};
}

core::Status Conversations::erase_item(std::string_view tenant, std::string_view id,
                                       std::string_view item_id) {
  HADAL_TRY(const StoredItem found, item(tenant, id, item_id));
  HADAL_TRY(const Place place, place_of(tenant, id));
  return db_.run("DELETE FROM conversation_items WHERE conversation = ? AND id = ?", place.seq,
                 found.id);
}

core::Status Conversations::forget_expired() {
  return db_.run("DELETE FROM conversations WHERE used <= ?", limits_.now() - limits_.ttl_s);
}

}  // namespace hadal::store
