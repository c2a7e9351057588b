#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/metrics/trace.h"
#include "base/types/engine_port.h"
#include "gateway/http/exchange.h"
#include "gateway/http/router.h"
#include "gateway/serving/answer.h"
#include "gateway/serving/api_reply.h"
#include "gateway/serving/event_feed.h"
#include "gateway/serving/request_maker.h"
#include "gateway/serving/workers.h"
#include "gateway/store/store.h"

namespace hadal::serving {

// Responses that are kept: previous_response_id and conversations on the way in, get, stream,
// delete, cancel and input_items afterwards, background ones in between. Each tenant sees its own
// only. All references outlive it; it outlives the engine's last answer. Thread-safe.
class StoredResponses {
 public:
  StoredResponses(store::Store& store, RequestMaker& maker, types::EnginePort& engine,
                  Workers& workers, Workers* tool_workers, metrics::SpanSink* spans)
      : store_(store),
        maker_(maker),
        engine_(engine),
        workers_(workers),
        tool_workers_(tool_workers),
        spans_(spans) {}

  // POST /v1/responses. Answers at once or later, errors too.
  void create(std::shared_ptr<http::Exchange> exchange, std::string tenant, std::string body);
  // Begins again what a background response of the last process had not ended; one that was begun
  // twice before has failed. Call when the engine is ready.
  void resume();
  // The server ends: background responses that are cut from now on are begun again by the next one.
  void stopping();

  void add_routes(http::Router& router, const TenantOf& tenant_of);

  // Of the items that stand before an input: as much as a body may have.
  static constexpr uint64_t kMostHistoryBytes = 64 << 20;

 private:
  struct Job {
    std::shared_ptr<http::Exchange> exchange;  // null for a resumed one
    std::string tenant, body;
    std::vector<std::string> history;
    // A resumed one's.
    std::string id;
    int64_t created = 0;
    uint32_t n_attempts = 0;
  };
  // A generation that others may ask for, or a background one that is still to be begun again.
  struct Running {
    std::weak_ptr<Answer> answer;
    std::shared_ptr<EventFeed> feed;  // of a background one, if it is streamed
    std::vector<std::shared_ptr<http::Exchange>> cancelled_by;  // wait for its end
  };

  void find_history(const std::shared_ptr<Job>& job);
  void begin(const std::shared_ptr<Job>& job);
  void begin_background(const std::shared_ptr<Job>& job, MadeRequest made,
                        store::StoredResponse row);
  void start(const std::shared_ptr<Job>& job, MadeRequest made, store::StoredResponse row);
  void refuse(const std::shared_ptr<Job>& job, const core::Error& error);
  void keep(const store::StoredResponse& row, const std::string& conversation,
            const std::string& object, std::function<void(core::Status)> kept);
  // `object` "": it is left to the next process.
  void ended(const std::string& tenant, const std::string& id, const std::string& object);
  bool left_to_the_next(bool background, std::string_view object) const;

  void get(const Reply& reply);
  void stream(const Reply& reply, uint64_t from, store::StoredResponse row);
  void remove(const Reply& reply);
  void cancel(const Reply& reply);
  void input_items(const Reply& reply);
  static void list_items(const Reply& reply, const store::Page& page,
                         const std::vector<store::StoredResponse>& rows);

  static std::string key(std::string_view tenant, std::string_view id);
  static std::string with_status(const std::string& object, std::string_view status,
                                 const core::Error* error);
  bool has_started(const std::string& key);
  bool is_running(const std::string& key);
  std::shared_ptr<EventFeed> feed_of(const std::string& key);

  store::Store& store_;
  RequestMaker& maker_;
  types::EnginePort& engine_;
  Workers& workers_;
  Workers* tool_workers_;     // null: no web tools
  metrics::SpanSink* spans_;  // null: none wanted
  FeedSender sender_;
  std::mutex mutex_;  // guards running_
  std::unordered_map<std::string, Running> running_;
  std::atomic<bool> stopping_{false};
};

}  // namespace hadal::serving
