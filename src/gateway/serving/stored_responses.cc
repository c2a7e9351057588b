#include "gateway/serving/stored_responses.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/core/log.h"
#include "gateway/openai/stored_items.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/serving/tool_runner.h"

namespace hadal::serving {
namespace {

using store::StoredResponse;
using store::Tables;

// Of the items that stand before an input: as much as a body may have.
constexpr uint64_t kMostHistoryBytes = 64 << 20;
// A background response that took the process down twice is not tried a third time.
constexpr uint32_t kMostAttempts = 2;

const Dialect& responses_dialect() {
  for (const Dialect& dialect : dialects())
    if (dialect.api == recipe::Api::kResponses) return dialect;
  std::abort();
}

core::Error no_response(std::string_view id) {
  return {core::Code::kNotFound, fmt::format("there is no response {}", id), "response_id"};
}

// As the API's own: clients tell by the code that they must send the whole conversation.
void refuse_previous(http::Exchange& exchange, std::string_view id) {
  std::string body = R"({"error":{"message":)";
  recipe::append_quoted(body, fmt::format("Previous response with id '{}' not found.", id));
  body +=
      R"(,"type":"invalid_request_error","param":"previous_response_id","code":"previous_response_not_found"}})";
  exchange.respond({400, "application/json", {}, std::move(body)});
}

std::string without_prefix(const std::string& id) {
  const size_t at = id.find('_');
  return at == std::string::npos ? id : id.substr(at + 1);
}

// `object` with another status, and error.
std::string with_status(const std::string& object, std::string_view status,
                        const core::Error* error) {
  auto json = nlohmann::ordered_json::parse(object, nullptr, false);
  if (!json.is_object()) return object;
  json["status"] = status;
  if (error != nullptr) {
    json["error"] = nlohmann::ordered_json{{"code", "server_error"}, {"message", error->message}};
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<store::StoredItem> named(const std::vector<openai::Item>& items) {
  std::vector<store::StoredItem> out;
  for (const openai::Item& item : items) out.push_back({item.id, item.json});
  return out;
}

}  // namespace

std::string StoredResponses::key(std::string_view tenant, std::string_view id) {
  return fmt::format("{}\n{}", tenant, id);
}

void StoredResponses::refuse(const std::shared_ptr<Job>& job, const core::Error& error) {
  if (job->exchange != nullptr) Reply{.exchange = job->exchange}.error(error);
  if (job->id.empty()) return;
  // A background response that was taken by the last process and cannot be begun by this one.
  store_.post<bool>(
      [tenant = job->tenant, id = job->id, error](Tables& tables) -> core::Result<bool> {
        HADAL_TRY(auto row, tables.responses.find(tenant, id));
        if (!row) return false;
        row->object = with_status(row->object, "failed", &error);
        row->status = "failed";
        row->request.clear();
        HADAL_TRY_VOID(tables.responses.update(*row));
        return true;
      },
      [](const core::Result<bool>&) {});
}

void StoredResponses::create(std::shared_ptr<http::Exchange> exchange, std::string tenant,
                             std::string body) {
  const auto job = std::make_shared<Job>();
  job->exchange = std::move(exchange);
  job->tenant = std::move(tenant);
  job->body = std::move(body);
  find_history(job);
}

void StoredResponses::find_history(const std::shared_ptr<Job>& job) {
  const openai::ResponseLinks links = openai::response_links(job->body);
  if (links.previous_response_id.empty() && links.conversation.empty()) return begin(job);
  if (!links.previous_response_id.empty() && !links.conversation.empty()) {
    return refuse(job, {core::Code::kInvalidRequest,
                        "previous_response_id and conversation exclude each other; give one",
                        "previous_response_id"});
  }
  using Rows = std::vector<StoredResponse>;
  using Items = std::vector<store::StoredItem>;
  if (!links.previous_response_id.empty()) {
    store_.post<Rows>(
        [tenant = job->tenant, id = links.previous_response_id](Tables& tables) {
          return tables.responses.chain(tenant, id, kMostHistoryBytes);
        },
        [this, job](core::Result<Rows> rows) {
          if (!rows && rows.error().code == core::Code::kNotFound && job->exchange != nullptr)
            return refuse_previous(*job->exchange, rows.error().param);
          if (!rows) {
            core::Error error = rows.error();
            error.param = "previous_response_id";
            return refuse(job, error);
          }
          workers_.run([this, job, kept = std::move(*rows)] {
            for (const StoredResponse& row : kept) {
              job->history.push_back(row.input);
              job->history.push_back(openai::output_items(row.object));
            }
            begin(job);
          });
        });
    return;
  }
  store_.post<Items>(
      [tenant = job->tenant, id = links.conversation](Tables& tables) {
        return tables.conversations.all_items(tenant, id, kMostHistoryBytes);
      },
      [this, job](core::Result<Items> items) {
        if (!items) return refuse(job, items.error());
        std::string list = "[";
        for (const store::StoredItem& item : *items) {
          if (list.size() > 1) list += ',';
          list += item.json;
        }
        job->history.push_back(list + "]");
        workers_.run([this, job] { begin(job); });
      });
}

void StoredResponses::begin(const std::shared_ptr<Job>& job) {
  auto made = maker_.make(
      responses_dialect(), job->body,
      {.tenant = job->tenant, .history = job->history, .id = job->id, .created = job->created});
  job->history = {};
  if (!made) return refuse(job, made.error());
  if (made->background && !made->store) {
    return refuse(job, {core::Code::kInvalidRequest,
                        "a background response must be stored; leave store out or true", "store"});
  }
  StoredResponse row{.tenant = job->tenant,
                     .id = made->id,
                     .previous = made->previous,
                     .created = made->created,
                     .background = made->background,
                     .n_attempts = job->n_attempts};
  if (made->store || !made->conversation.empty()) {
    row.input = openai::stored_input(made->text->doc.root()["input"], without_prefix(made->id));
  }
  if (made->background) return begin_background(job, std::move(*made), std::move(row));
  job->body = {};
  start(job, std::move(*made), std::move(row));
}

// The client is told after the row is there; from then on it will be generated, whatever happens.
void StoredResponses::begin_background(const std::shared_ptr<Job>& job, MadeRequest made,
                                       StoredResponse row) {
  row.status = "queued";
  row.request = std::move(job->body);
  row.object = made.queued_object;
  ++row.n_attempts;
  const bool resumed = !job->id.empty();
  const auto waiting = std::make_shared<MadeRequest>(std::move(made));
  store_.post<bool>(
      [row, resumed](Tables& tables) -> core::Result<bool> {
        HADAL_TRY_VOID(resumed ? tables.responses.update(row) : tables.responses.put(row));
        return true;
      },
      [this, job, row, waiting](const core::Result<bool>& kept) mutable {
        if (!kept) return refuse(job, kept.error());
        if (job->exchange != nullptr && !waiting->stream->streamed()) {
          Reply{.exchange = std::exchange(job->exchange, nullptr)}.json(row.object);
        }
        start(job, std::move(*waiting), std::move(row));
      });
}

void StoredResponses::start(const std::shared_ptr<Job>& job, MadeRequest made, StoredResponse row) {
  Answer::Parts parts{.exchange = std::move(job->exchange),
                      .text = std::move(made.text),
                      .stream = std::move(made.stream),
                      .api = recipe::Api::kResponses,
                      .model = std::move(made.model),
                      .compat = maker_.codec().compat,
                      .event_times = made.event_times,
                      .engine = &engine_,
                      .spans = spans_,
                      .run_tools = make_tool_runner(made, maker_, tool_workers_),
                      .detached = made.background,
                      .keep = {},
                      .on_finished = {}};
  const bool stored = made.store;
  if (stored || !made.conversation.empty()) {
    parts.keep = [this, row, conversation = made.conversation, stored](
                     const std::string& object, std::function<void(core::Status)> kept) {
      StoredResponse final_row = row;
      if (!stored) final_row.id.clear();
      keep(final_row, conversation, object, std::move(kept));
    };
  }
  parts.on_finished = [this, tenant = row.tenant, id = row.id](const std::string& object) {
    ended(tenant, id, object);
  };
  const auto answer = std::make_shared<Answer>(std::move(parts));
  {
    const std::lock_guard lock(mutex_);
    running_[key(row.tenant, row.id)].answer = answer;
  }
  answer->start(std::move(made.requests), made.prompt);
}

// The response, and what it adds to its conversation, in one transaction. `row.id` "": the response
// itself is not kept.
void StoredResponses::keep(const StoredResponse& row, const std::string& conversation,
                           const std::string& object, std::function<void(core::Status)> kept) {
  store_.post<bool>(
      [row, conversation, object,
       stopping = stopping_.load()](Tables& tables) -> core::Result<bool> {
        if (!row.id.empty()) {
          StoredResponse done = row;
          done.status = openai::response_status(object);
          if (stopping && done.background && done.status == "cancelled") {
            done.status = row.status;
            --done.n_attempts;
            HADAL_TRY_VOID(tables.responses.update(done));
            return true;
          }
          done.request.clear();
          done.object = object;
          HADAL_TRY_VOID(done.background ? tables.responses.update(done)
                                         : tables.responses.put(done));
        }
        if (conversation.empty()) return true;
        HADAL_TRY_VOID(tables.conversations.append(row.tenant, conversation,
                                                   named(openai::split_items(row.input)), true));
        HADAL_TRY_VOID(tables.conversations.append(
            row.tenant, conversation, named(openai::split_items(openai::output_items(object))),
            true));
        return true;
      },
      [kept = std::move(kept)](const core::Result<bool>& done) {
        kept(done ? core::Status() : core::Status(done.error()));
      });
}

void StoredResponses::ended(const std::string& tenant, const std::string& id,
                            const std::string& object) {
  std::vector<std::shared_ptr<http::Exchange>> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(key(tenant, id));
    if (found == running_.end()) return;
    waiting = std::move(found->second.cancelled_by);
    running_.erase(found);
  }
  for (auto& exchange : waiting) Reply{.exchange = std::move(exchange)}.json(object);
}

void StoredResponses::resume() {
  store_.post<std::vector<StoredResponse>>(
      [](Tables& tables) { return tables.responses.unfinished(); },
      [this](const core::Result<std::vector<StoredResponse>>& rows) {
        if (!rows) {
          HADAL_LOG(kError, "store", "background responses cannot be resumed: {}",
                    rows.error().message);
          return;
        }
        for (const StoredResponse& row : *rows) {
          const auto job = std::make_shared<Job>();
          job->tenant = row.tenant;
          job->body = row.request;
          job->id = row.id;
          job->created = row.created;
          job->n_attempts = row.n_attempts;
          if (row.n_attempts >= kMostAttempts) {
            refuse(job, {core::Code::kInternal, "the server stopped twice while it made this"});
            continue;
          }
          workers_.run([this, job] { find_history(job); });
        }
      });
}

bool StoredResponses::has_started(const std::string& running_key) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(running_key);
  if (found == running_.end()) return false;
  const auto answer = found->second.answer.lock();
  return answer != nullptr && answer->begun();
}

// ---- the paths ----

void StoredResponses::get(const Reply& reply) {
  if (const auto stream = reply.request().query_param("stream"); stream && *stream == "true") {
    return reply.error({core::Code::kInvalidRequest,
                        "a stored response is not streamed again; leave stream out", "stream"});
  }
  store_.post<std::optional<StoredResponse>>(
      [reply](Tables& tables) { return tables.responses.find(reply.tenant, reply.id); },
      [this, reply](const core::Result<std::optional<StoredResponse>>& row) {
        if (!row) return reply.error(row.error());
        if (!*row) return reply.error(no_response(reply.id));
        const bool begun = (*row)->status == "queued" && has_started(key(reply.tenant, reply.id));
        reply.json(begun ? with_status((*row)->object, "in_progress", nullptr) : (*row)->object);
      });
}

void StoredResponses::remove(const Reply& reply) {
  store_.post<bool>(
      [reply](Tables& tables) { return tables.responses.erase(reply.tenant, reply.id); },
      [this, reply](const core::Result<bool>& erased) {
        if (!erased) return reply.error(erased.error());
        if (!*erased) return reply.error(no_response(reply.id));
        std::shared_ptr<Answer> answer;
        {
          const std::lock_guard lock(mutex_);
          const auto found = running_.find(key(reply.tenant, reply.id));
          if (found != running_.end()) answer = found->second.answer.lock();
        }
        if (answer != nullptr) answer->cancel();
        std::string body = R"({"id":)";
        recipe::append_quoted(body, reply.id);
        reply.json(body + R"(,"object":"response","deleted":true})");
      });
}

void StoredResponses::cancel(const Reply& reply) {
  store_.post<std::optional<StoredResponse>>(
      [reply](Tables& tables) { return tables.responses.find(reply.tenant, reply.id); },
      [this, reply](const core::Result<std::optional<StoredResponse>>& row) {
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
        // One that has ended stays as it is.
        if (answer == nullptr) return reply.json((*row)->object);
        answer->cancel();
      });
}

void StoredResponses::input_items(const Reply& reply) {
  const auto page = read_page(reply.request(), 20, 100);
  if (!page) return reply.error(page.error());
  store_.post<std::optional<StoredResponse>>(
      [reply](Tables& tables) { return tables.responses.find(reply.tenant, reply.id); },
      [reply, page = *page](const core::Result<std::optional<StoredResponse>>& row) {
        if (!row) return reply.error(row.error());
        if (!*row) return reply.error(no_response(reply.id));
        std::vector<openai::Item> items = openai::split_items((*row)->input);
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
      });
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
