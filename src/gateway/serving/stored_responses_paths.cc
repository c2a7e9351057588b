#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "gateway/openai/stored_items.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/serving/stored_responses.h"

// The paths of what StoredResponses keeps.
namespace hadal::serving {
namespace {

using store::StoredResponse;
using store::Tables;

core::Error no_response(std::string_view id) {
  return {core::Code::kNotFound, fmt::format("there is no response {}", id), "response_id"};
}

// The query of GET: the number of the first event that is wanted, or nothing without stream=true.
core::Result<std::optional<uint64_t>> first_event(const http::Request& request) {
  const auto stream = request.query_param("stream");
  if (stream && *stream != "true" && *stream != "false")
    return core::Error{core::Code::kInvalidRequest, "stream: must be true or false", "stream"};
  uint64_t from = 0;
  if (const auto after = request.query_param("starting_after")) {
    const char* end = after->data() + after->size();
    const auto read = std::from_chars(after->data(), end, from);
    if (read.ec != std::errc() || read.ptr != end || from > INT64_MAX) {
      return core::Error{core::Code::kInvalidRequest,
                         "starting_after: must be the sequence_number of an event",
                         "starting_after"};
    }
    ++from;
  }
  if (!stream || *stream != "true") return std::optional<uint64_t>();
  return std::optional<uint64_t>(from);
}

}  // namespace

void StoredResponses::get(const Reply& reply) {
  const auto from = first_event(reply.request());
  if (!from) return reply.error(from.error());
  using Row = std::optional<StoredResponse>;
  store_.post<Row>(
      [reply, streamed = from->has_value()](Tables& tables) -> core::Result<Row> {
        HADAL_TRY(Row row, tables.responses.find(reply.tenant, reply.id));
        if (row && streamed) {
          HADAL_TRY(row->events, tables.responses.events(reply.tenant, reply.id));
        }
        return row;
      },
      [this, reply, from = *from](core::Result<Row> row) {
        if (!row) return reply.error(row.error());
        if (!*row) return reply.error(no_response(reply.id));
        if (from) return stream(reply, *from, std::move(**row));
        const bool begun = (*row)->status == "queued" && has_started(key(reply.tenant, reply.id));
        reply.json(begun ? with_status((*row)->object, "in_progress", nullptr) : (*row)->object);
      });
}

// On the store's thread, in the order of its tasks: a response that had not ended when it was read
// ends after this, so that its feed is there or will be.
void StoredResponses::stream(const Reply& reply, uint64_t from, StoredResponse row) {
  if (!row.events) {
    return reply.error({core::Code::kInvalidRequest,
                        "only a response that was created with stream: true can be streamed; "
                        "leave stream out",
                        "stream"});
  }
  if (!row.request.empty())
    return sender_.add(feed_of(key(reply.tenant, reply.id)), reply.exchange, from);
  const auto feed = std::make_shared<EventFeed>(sender_, std::move(*row.events), row.object);
  if (const auto last = feed->last_number(); last && from > *last + 1) {
    return reply.error(
        {core::Code::kInvalidRequest,
         fmt::format("starting_after: the last event of this response has the number {}", *last),
         "starting_after"});
  }
  sender_.add(feed, reply.exchange, from);
}

void StoredResponses::remove(const Reply& reply) {
  store_.post<bool>(
      [reply](Tables& tables) { return tables.responses.erase(reply.tenant, reply.id); },
      [this, reply](const core::Result<bool>& erased) {
        if (!erased) return reply.error(erased.error());
        if (!*erased) return reply.error(no_response(reply.id));
        std::shared_ptr<Answer> answer;
        std::shared_ptr<EventFeed> waiting;  // of one that was to be begun again
        {
          const std::lock_guard lock(mutex_);
          const auto found = running_.find(key(reply.tenant, reply.id));
          if (found != running_.end()) {
            answer = found->second.answer.lock();
            waiting = found->second.feed;
            if (answer == nullptr) running_.erase(found);
          }
        }
        if (answer != nullptr) {
          answer->cancel();
        } else if (waiting != nullptr) {
          waiting->end({});
        }
        std::string body = R"({"id":)";
        recipe::append_quoted(body, reply.id);
        reply.json(body + R"(,"object":"response","deleted":true})");
      });
}

void StoredResponses::cancel(const Reply& reply) {
  using Row = std::optional<StoredResponse>;
  store_.post<Row>(
      [this, reply](Tables& tables) -> core::Result<Row> {
        HADAL_TRY(Row row, tables.responses.find(reply.tenant, reply.id));
        if (!row || row->request.empty() || is_running(key(reply.tenant, reply.id))) return row;
        // Still to be begun again after the last process.
        HADAL_TRY(row->events, tables.responses.events(reply.tenant, reply.id));
        row->status = "cancelled";
        row->object = with_status(row->object, row->status, nullptr);
        row->request.clear();
        HADAL_TRY_VOID(tables.responses.update(*row));
        return row;
      },
      [this, reply](const core::Result<Row>& row) {
        if (!row) return reply.error(row.error());
        if (!*row) return reply.error(no_response(reply.id));
        if (!(*row)->background) {
          return reply.error({core::Code::kInvalidRequest,
                              "only responses that were created with background: true can be "
                              "cancelled",
                              "response_id"});
        }
        std::shared_ptr<Answer> answer;
        {
          const std::lock_guard lock(mutex_);
          const auto found = running_.find(key(reply.tenant, reply.id));
          if (found != running_.end()) {
            answer = found->second.answer.lock();
            if (answer != nullptr) found->second.cancelled_by.push_back(reply.exchange);
          }
        }
        if (answer != nullptr) return answer->cancel();
        // One that has ended stays as it is.
        reply.json((*row)->object);
        ended(reply.tenant, reply.id, (*row)->object);
      });
}

// The items that the response was made from: those of the responses that it goes on from, as far
// as they are kept, and its own.
void StoredResponses::input_items(const Reply& reply) {
  const auto page = read_page(reply.request(), 20, 100);
  if (!page) return reply.error(page.error());
  using Rows = std::vector<StoredResponse>;
  store_.post<Rows>(
      [reply](Tables& tables) {
        return tables.responses.chain(reply.tenant, reply.id, kMostHistoryBytes,
                                      store::Responses::Chain::kWhatIsLeft);
      },
      [this, reply, page = *page](core::Result<Rows> rows) {
        if (!rows && rows.error().code == core::Code::kNotFound)
          return reply.error(no_response(reply.id));
        if (!rows) return reply.error(rows.error());
        workers_.run([reply, page, rows = std::move(*rows)] { list_items(reply, page, rows); });
      });
}

void StoredResponses::list_items(const Reply& reply, const store::Page& page,
                                 const std::vector<StoredResponse>& rows) {
  std::vector<openai::Item> items;
  const auto add = [&](std::string_view list) {
    for (openai::Item& item : openai::split_items(list)) items.push_back(std::move(item));
  };
  for (const StoredResponse& row : rows) {
    add(row.input);
    if (&row != &rows.back()) add(openai::output_items(row.object));
  }
  if (page.descending) std::reverse(items.begin(), items.end());
  auto at = items.begin();
  if (!page.after.empty()) {
    at = std::find_if(items.begin(), items.end(),
                      [&](const openai::Item& item) { return item.id == page.after; });
    if (at == items.end()) {
      return reply.error({core::Code::kInvalidRequest,
                          fmt::format("after: there is no item {}", page.after), "after"});
    }
    ++at;
  }
  std::vector<std::string> entries, ids;
  for (; at != items.end() && entries.size() < page.limit; ++at) {
    entries.push_back(at->json);
    ids.push_back(at->id);
  }
  reply.json(list_json(entries, ids, at != items.end()));
}

void StoredResponses::add_routes(http::Router& router, const TenantOf& tenant_of) {
  const auto add = [&](const char* method, const char* rest,
                       void (StoredResponses::*handler)(const Reply&)) {
    for (const char* root : {"/v1/responses/{id}", "/responses/{id}"}) {
      router.add(method, std::string(root) + rest,
                 [this, handler, tenant_of](std::shared_ptr<http::Exchange> exchange,
                                            const http::Request& request) {
                   (this->*handler)({.exchange = std::move(exchange),
                                     .tenant = tenant_of(request),
                                     .id = std::string(request.path_param("id")),
                                     .item_id = {}});
                 });
    }
  };
  add("GET", "", &StoredResponses::get);
  add("DELETE", "", &StoredResponses::remove);
  add("POST", "/cancel", &StoredResponses::cancel);
  add("GET", "/input_items", &StoredResponses::input_items);
}

}  // namespace hadal::serving
