#include "gateway/serving/stored_responses.h"

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

// A background response that took the process down twice is not tried a third time.
constexpr uint32_t kMostAttempts = 2;

const Dialect& responses_dialect() {
  for (const Dialect& dialect : dialects())
    if (dialect.api == recipe::Api::kResponses) return dialect;
  std::abort();
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

std::vector<store::StoredItem> named(const std::vector<openai::Item>& items) {
  std::vector<store::StoredItem> out;
  for (const openai::Item& item : items) out.push_back({item.id, item.json});
  return out;
}

}  // namespace

// `object` with another status, and error.
std::string StoredResponses::with_status(const std::string& object, std::string_view status,
                                         const core::Error* error) {
  auto json = nlohmann::ordered_json::parse(object, nullptr, false);
  if (!json.is_object()) return object;
  json["status"] = status;
  if (error != nullptr) {
    json["error"] = nlohmann::ordered_json{{"code", "server_error"}, {"message", error->message}};
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string StoredResponses::key(std::string_view tenant, std::string_view id) {
  return fmt::format("{}\n{}", tenant, id);
}

void StoredResponses::refuse(const std::shared_ptr<Job>& job, const core::Error& error) {
  if (job->exchange != nullptr) Reply{.exchange = job->exchange}.error(error);
  if (job->id.empty()) return;
  // A background response that was taken by the last process and cannot be begun by this one.
  store_.post<std::string>(
      [tenant = job->tenant, id = job->id, error](Tables& tables) -> core::Result<std::string> {
        HADAL_TRY(auto row, tables.responses.find(tenant, id));
        if (!row) return std::string();
        row->object = with_status(row->object, "failed", &error);
        row->status = "failed";
        row->request.clear();
        HADAL_TRY(row->events, tables.responses.events(tenant, id));
        HADAL_TRY_VOID(tables.responses.update(*row));
        return row->object;
      },
      [this, tenant = job->tenant, id = job->id](const core::Result<std::string>& object) {
        ended(tenant, id, object ? *object : std::string());
      });
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
  if (made.stream->streamed()) row.events = "";
  ++row.n_attempts;
  const bool resumed = !job->id.empty();
  const auto waiting = std::make_shared<MadeRequest>(std::move(made));
  store_.post<bool>(
      [row, resumed](Tables& tables) -> core::Result<bool> {
        if (resumed) {  // a client may have cancelled or deleted it meanwhile
          HADAL_TRY(const auto now, tables.responses.find(row.tenant, row.id));
          if (!now || now->request.empty()) return false;
        }
        HADAL_TRY_VOID(tables.responses.put(row));
        return true;
      },
      [this, job, row, waiting](const core::Result<bool>& kept) mutable {
        if (!kept) return refuse(job, kept.error());
        if (!*kept) return;
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
                      .on_events = {},
                      .goes_on_elsewhere = {},
                      .keep = {},
                      .on_finished = {}};
  const bool stored = made.store;
  const auto exchange = parts.exchange;
  std::shared_ptr<EventFeed> feed;  // of a background one: others may read it while it is made
  std::function<std::string()> packed_events;
  if (stored && parts.stream->streamed() && made.background) {
    feed = feed_of(key(row.tenant, row.id));
    parts.on_events = [feed](std::string_view events) { feed->publish(events); };
    packed_events = [feed] { return feed->packed(); };
  } else if (stored && parts.stream->streamed()) {
    const auto log = std::make_shared<EventLog>();
    parts.on_events = [log](std::string_view events) { log->append(events); };
    packed_events = [log] { return packed_log(*log); };
  }
  if (stored || !made.conversation.empty()) {
    parts.keep = [this, row, conversation = made.conversation, stored, packed_events](
                     const std::string& object, std::function<void(core::Status)> kept) {
      StoredResponse final_row = row;
      if (packed_events) final_row.events = packed_events();
      if (!stored) final_row.id.clear();
      keep(final_row, conversation, object, std::move(kept));
    };
  }
  if (made.background) {
    parts.goes_on_elsewhere = [this](const std::string& object) {
      return left_to_the_next(true, object);
    };
  }
  parts.on_finished = [this, background = row.background, tenant = row.tenant,
                       id = row.id](const std::string& object) {
    ended(tenant, id, left_to_the_next(background, object) ? std::string() : object);
  };
  const auto answer = std::make_shared<Answer>(std::move(parts));
  {
    const std::lock_guard lock(mutex_);
    running_[key(row.tenant, row.id)].answer = answer;
  }
  answer->start(std::move(made.requests), made.prompt);
  if (feed != nullptr && row.background && exchange != nullptr) sender_.add(feed, exchange, 0);
}

// The response, and what it adds to its conversation, in one transaction. `row.id` "": the response
// itself is not kept.
void StoredResponses::keep(const StoredResponse& row, const std::string& conversation,
                           const std::string& object, std::function<void(core::Status)> kept) {
  store_.post<bool>(
      [row, conversation, object,
       left = left_to_the_next(row.background, object)](Tables& tables) -> core::Result<bool> {
        if (!row.id.empty()) {
          StoredResponse done = row;
          done.status = openai::response_status(object);
          if (left) {
            done.status = row.status;
            if (done.events) done.events = "";
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
  Running done;
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(key(tenant, id));
    if (found == running_.end()) return;
    done = std::move(found->second);
    running_.erase(found);
  }
  if (done.feed != nullptr) done.feed->end(object);
  for (auto& exchange : done.cancelled_by) {
    if (object.empty()) {
      Reply{.exchange = std::move(exchange)}.error(
          {core::Code::kUnavailable, "the server is shutting down; try again later"});
    } else {
      Reply{.exchange = std::move(exchange)}.json(object);
    }
  }
}

bool StoredResponses::left_to_the_next(bool background, std::string_view object) const {
  return background && stopping_ && openai::response_status(object) == "cancelled";
}

void StoredResponses::stopping() {
  stopping_ = true;
  // Those that nobody has begun: their readers come again to the next process.
  std::vector<std::shared_ptr<EventFeed>> waiting;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [name, running] : running_) {
      if (running.feed != nullptr && running.answer.expired()) waiting.push_back(running.feed);
    }
  }
  for (const auto& feed : waiting) feed->end({});
}

bool StoredResponses::is_running(const std::string& running_key) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(running_key);
  return found != running_.end() && !found->second.answer.expired();
}

std::shared_ptr<EventFeed> StoredResponses::feed_of(const std::string& running_key) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<EventFeed>& feed = running_[running_key].feed;
  if (feed == nullptr) feed = std::make_shared<EventFeed>(sender_);
  return feed;
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

}  // namespace hadal::serving
