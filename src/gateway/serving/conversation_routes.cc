#include "gateway/serving/conversation_routes.h"

#include <utility>

#include <fmt/format.h>

#include "gateway/openai/stored_items.h"
#include "gateway/recipe/json_value.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/request_rules.h"

namespace hadal::serving {
namespace {

using store::StoredConversation;
using store::StoredItem;
using store::Tables;

std::string object_of(const StoredConversation& c) {
  return fmt::format(R"({{"id":"{}","object":"conversation","created_at":{},"metadata":{}}})", c.id,
                     c.created, c.metadata);
}

std::string items_json(const std::vector<StoredItem>& items, bool has_more) {
  std::vector<std::string> entries, ids;
  for (const StoredItem& item : items) {
    entries.push_back(item.json);
    ids.push_back(item.id);
  }
  return list_json(entries, ids, has_more);
}

class Conversations {
 public:
  Conversations(store::Store& store, RequestMaker& maker) : store_(store), maker_(maker) {}

  void create(const Reply& reply) {
    auto metadata = read_metadata(reply.request().body);
    if (!metadata) return reply.error(metadata.error());
    const std::string name = maker_.new_name();
    auto items = read_items(reply.request().body, name);
    if (!items) return reply.error(items.error());
    const StoredConversation made{"conv_" + name, unix_seconds(), std::move(*metadata)};
    store_.post<StoredConversation>(
        [reply, made, items = std::move(*items)](Tables& t) -> core::Result<StoredConversation> {
          HADAL_TRY_VOID(t.conversations.create(reply.tenant, made));
          HADAL_TRY_VOID(t.conversations.append(reply.tenant, made.id, items));
          return made;
        },
        answer_object(reply));
  }

  void get(const Reply& reply) {
    store_.post<StoredConversation>(
        [reply](Tables& t) { return t.conversations.find(reply.tenant, reply.id); },
        answer_object(reply));
  }

  void update(const Reply& reply) {
    auto metadata = read_new_metadata(reply.request().body);
    if (!metadata) return reply.error(metadata.error());
    store_.post<StoredConversation>(
        [reply, json = std::move(*metadata)](Tables& t) -> core::Result<StoredConversation> {
          HADAL_TRY_VOID(t.conversations.set_metadata(reply.tenant, reply.id, json));
          return t.conversations.find(reply.tenant, reply.id);
        },
        answer_object(reply));
  }

  void remove(const Reply& reply) {
    store_.post<bool>(
        [reply](Tables& t) -> core::Result<bool> {
          HADAL_TRY_VOID(t.conversations.erase(reply.tenant, reply.id));
          return true;
        },
        [reply](const core::Result<bool>& done) {
          if (!done) return reply.error(done.error());
          std::string body = R"({"id":)";
          recipe::append_quoted(body, reply.id);
          reply.json(body + R"(,"object":"conversation.deleted","deleted":true})");
        });
  }

  void add_items(const Reply& reply) {
    auto items = read_items(reply.request().body, maker_.new_name());
    if (!items) return reply.error(items.error());
    if (items->empty()) {
      return reply.error({core::Code::kInvalidRequest, "items: must be a list of items", "items"});
    }
    store_.post<std::vector<StoredItem>>(
        [reply, items = std::move(*items)](Tables& t) -> core::Result<std::vector<StoredItem>> {
          HADAL_TRY_VOID(t.conversations.append(reply.tenant, reply.id, items));
          return items;
        },
        [reply](const core::Result<std::vector<StoredItem>>& added) {
          if (!added) return reply.error(added.error());
          reply.json(items_json(*added, false));
        });
  }

  void list_items(const Reply& reply) {
    const auto page = read_page(reply.request(), 20, 100);
    if (!page) return reply.error(page.error());
    using Items = store::Listed<StoredItem>;
    store_.post<Items>(
        [reply, page = *page](Tables& t) {
          return t.conversations.items(reply.tenant, reply.id, page);
        },
        [reply](const core::Result<Items>& items) {
          if (!items) return reply.error(items.error());
          reply.json(items_json(items->entries, items->has_more));
        });
  }

  void get_item(const Reply& reply) {
    store_.post<StoredItem>(
        [reply](Tables& t) { return t.conversations.item(reply.tenant, reply.id, reply.item_id); },
        [reply](const core::Result<StoredItem>& item) {
          if (!item) return reply.error(item.error());
          reply.json(item->json);
        });
  }

  void remove_item(const Reply& reply) {
    store_.post<StoredConversation>(
        [reply](Tables& t) -> core::Result<StoredConversation> {
          HADAL_TRY_VOID(t.conversations.erase_item(reply.tenant, reply.id, reply.item_id));
          return t.conversations.find(reply.tenant, reply.id);
        },
        answer_object(reply));
  }

 private:
  static std::function<void(core::Result<StoredConversation>)> answer_object(const Reply& reply) {
    return [reply](const core::Result<StoredConversation>& c) {
      if (!c) return reply.error(c.error());
      reply.json(object_of(*c));
    };
  }

  // "{}" for a body without metadata, or no body.
  static core::Result<std::string> read_metadata(const std::string& body) {
    if (body.empty()) return std::string("{}");
    recipe::JsonDoc doc;
    HADAL_TRY_VOID(doc.parse(body));
    return checked_metadata(doc.root(), "{}");
  }

  // For a change: a body that says nothing must not take away what is there.
  static core::Result<std::string> read_new_metadata(const std::string& body) {
    recipe::JsonDoc doc;
    HADAL_TRY_VOID(doc.parse(body));
    HADAL_TRY(std::string metadata, checked_metadata(doc.root(), ""));
    if (!metadata.empty()) return metadata;
    if (!doc.root()["metadata"].is_null())
      return recipe::invalid("metadata: is missing; null or {} takes all away", "metadata");
    return std::string("{}");
  }

  static core::Result<std::vector<StoredItem>> read_items(const std::string& body,
                                                          const std::string& name) {
    std::vector<StoredItem> out;
    if (body.empty()) return out;
    HADAL_TRY(const std::vector<openai::Item> items, openai::conversation_items(body, name));
    for (const openai::Item& item : items) out.push_back({item.id, item.json});
    return out;
  }

  store::Store& store_;
  RequestMaker& maker_;
};

}  // namespace

void add_conversation_routes(http::Router& router, const TenantOf& tenant_of, store::Store& store,
                             RequestMaker& maker) {
  const auto conversations = std::make_shared<Conversations>(store, maker);
  const auto add = [&](const char* method, const char* path,
                       void (Conversations::*handler)(const Reply&)) {
    router.add(method, path,
               [conversations, handler, tenant_of](std::shared_ptr<http::Exchange> exchange,
                                                   const http::Request& request) {
                 ((*conversations).*handler)({.exchange = std::move(exchange),
                                              .tenant = tenant_of(request),
                                              .id = std::string(request.path_param("id")),
                                              .item_id = std::string(request.path_param("item"))});
               });
  };
  add("POST", "/v1/conversations", &Conversations::create);
  add("GET", "/v1/conversations/{id}", &Conversations::get);
  add("POST", "/v1/conversations/{id}", &Conversations::update);
  add("DELETE", "/v1/conversations/{id}", &Conversations::remove);
  add("POST", "/v1/conversations/{id}/items", &Conversations::add_items);
  add("GET", "/v1/conversations/{id}/items", &Conversations::list_items);
  add("GET", "/v1/conversations/{id}/items/{item}", &Conversations::get_item);
  add("DELETE", "/v1/conversations/{id}/items/{item}", &Conversations::remove_item);
}

}  // namespace hadal::serving
