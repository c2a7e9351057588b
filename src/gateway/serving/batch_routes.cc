#include "gateway/serving/batch_routes.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "gateway/recipe/json_value.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/recipe/request_rules.h"
#include "gateway/serving/batch_line.h"

namespace hadal::serving {
namespace {

using recipe::invalid;
using recipe::JsonValue;
using store::BatchState;
using store::StoredBatch;
using store::Tables;

constexpr int64_t kLongestWindow = 7 * 86400;                        // seconds
constexpr uint64_t kShortestLife = 3600, kLongestLife = 30 * 86400;  // of result files, seconds

std::string object_of(const StoredBatch& b) {
  std::string out;
  const auto text = [&](std::string_view key, std::string_view value) {
    out += fmt::format(R"(,"{}":)", key);
    recipe::append_quoted_or_null(out, value);
  };
  const auto time = [&](std::string_view key, const std::optional<int64_t>& value) {
    out += value ? fmt::format(R"(,"{}":{})", key, *value) : fmt::format(R"(,"{}":null)", key);
  };
  out = R"({"id":)";
  recipe::append_quoted(out, b.id);
  out += R"(,"object":"batch")";
  text("endpoint", b.endpoint);
  out += b.errors.empty() ? std::string(R"(,"errors":null)")
                          : fmt::format(R"(,"errors":{{"object":"list","data":{}}})", b.errors);
  text("input_file_id", b.input_file);
  text("completion_window", b.window);
  text("status", store::batch_state_name(b.state));
  text("output_file_id", b.output_file);
  text("error_file_id", b.error_file);
  time("created_at", b.created);
  time("in_progress_at", b.in_progress);
  time("expires_at", b.expires);
  time("finalizing_at", b.finalizing);
  time("completed_at", b.completed);
  time("failed_at", b.failed);
  time("expired_at", b.expired);
  time("cancelling_at", b.cancelling);
  time("cancelled_at", b.cancelled);
  return out + fmt::format(
                   R"(,"request_counts":{{"total":{},"completed":{},"failed":{}}},"metadata":{}}})",
                   b.n_total, b.n_completed, b.n_failed, b.metadata);
}

// "24h", and (ours) any time up to 7 days in s, m, h or d.
core::Result<int64_t> read_window(std::string_view text) {
  const core::Error wrong =
      invalid("completion_window: must be 24h, or another time of at most 7d in s, m, h or d",
              "completion_window");
  int64_t n = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), n);
  if (read.ec != std::errc() || read.ptr + 1 != text.data() + text.size()) return wrong;
  const char unit = *read.ptr;
  const int64_t seconds = unit == 's'   ? 1
                          : unit == 'm' ? 60
                          : unit == 'h' ? 3600
                          : unit == 'd' ? 86400
                                        : 0;
  if (seconds == 0 || n < 1 || n > kLongestWindow / seconds) return wrong;
  return n * seconds;
}

core::Result<StoredBatch> read_batch(const std::string& body) {
  recipe::JsonDoc doc;
  HADAL_TRY_VOID(doc.parse(body));
  const JsonValue root = doc.root();
  StoredBatch batch;
  HADAL_TRY(batch.metadata, checked_metadata(root, "null"));
  for (const char* key : {"input_file_id", "endpoint", "completion_window"}) {
    if (!root[key].is_string()) return invalid(fmt::format("{}: must be a text", key), key);
  }
  batch.input_file = root["input_file_id"].str();
  batch.endpoint = root["endpoint"].str();
  batch.window = root["completion_window"].str();
  if (dialect_of_path(batch.endpoint) == nullptr) {
    return invalid("endpoint: must be a path that answers conversations, as /v1/chat/completions",
                   "endpoint");
  }
  HADAL_TRY(const int64_t window, read_window(batch.window));
  batch.created = unix_seconds();
  batch.expires = batch.created + window;
  const JsonValue life = root["output_expires_after"];
  if (life.absent_or_null()) return batch;
  const JsonValue seconds = life["seconds"];
  if (!life.is_object() || life["anchor"].str() != "created_at" ||
      !seconds.is(recipe::JsonType::kUnsigned) || seconds.node()->u < kShortestLife ||
      seconds.node()->u > kLongestLife) {
    return invalid(fmt::format("output_expires_after: must have the anchor created_at and seconds "
                               "from {} to {}",
                               kShortestLife, kLongestLife),
                   "output_expires_after");
  }
  batch.output_ttl = static_cast<int64_t>(seconds.node()->u);
  return batch;
}

class Batches {
 public:
  Batches(store::Store& store, RequestMaker& maker, BatchRunner& runner)
      : store_(store), maker_(maker), runner_(runner) {}

  void create(const Reply& reply) {
    auto batch = read_batch(reply.request().body);
    if (!batch) return reply.error(batch.error());
    batch->tenant = reply.tenant;
    batch->id = "batch_" + maker_.new_name();
    store_.post<StoredBatch>(
        [batch = std::move(*batch)](Tables& t) -> core::Result<StoredBatch> {
          auto file = t.files.find(batch.tenant, batch.input_file);
          if (!file && file.error().code == core::Code::kNotFound)
            return invalid(file.error().message, "input_file_id");
          if (!file) return file.error();
          if (file->purpose != "batch") {
            return invalid("input_file_id: the file was not uploaded with purpose batch",
                           "input_file_id");
          }
          HADAL_TRY_VOID(t.batches.create(batch));
          return batch;
        },
        [this, reply](const core::Result<StoredBatch>& made) {
          if (!made) return reply.error(made.error());
          reply.json(object_of(*made));
          runner_.wake();
        });
  }

  void get(const Reply& reply) {
    store_.post<StoredBatch>([reply](Tables& t) { return t.batches.find(reply.tenant, reply.id); },
                             [reply](const core::Result<StoredBatch>& batch) {
                               if (!batch) return reply.error(batch.error());
                               reply.json(object_of(*batch));
                             });
  }

  void list(const Reply& reply) {
    const auto page = read_page(reply.request(), 20, 100);
    if (!page) return reply.error(page.error());
    using Entries = store::Listed<StoredBatch>;
    store_.post<Entries>(
        [reply, page = *page](Tables& t) { return t.batches.list(reply.tenant, page); },
        [reply](const core::Result<Entries>& batches) {
          if (!batches) return reply.error(batches.error());
          std::vector<std::string> entries, ids;
          for (const StoredBatch& batch : batches->entries) {
            entries.push_back(object_of(batch));
            ids.push_back(batch.id);
          }
          reply.json(list_json(entries, ids, batches->has_more));
        });
  }

  void cancel(const Reply& reply) {
    store_.post<StoredBatch>(
        [reply, now = store_.now()](Tables& t) -> core::Result<StoredBatch> {
          HADAL_TRY(StoredBatch batch, t.batches.find(reply.tenant, reply.id));
          if (!is_open(batch.state)) {
            return invalid(fmt::format("the batch is {} and cannot be cancelled",
                                       store::batch_state_name(batch.state)),
                           "batch_id");
          }
          if (batch.state == BatchState::kCancelling) return batch;
          batch.state = BatchState::kCancelling;
          batch.cancelling = now;
          HADAL_TRY_VOID(t.batches.update(batch));
          return batch;
        },
        [this, reply](const core::Result<StoredBatch>& batch) {
          if (!batch) return reply.error(batch.error());
          reply.json(object_of(*batch));
          runner_.wake();
        });
  }

 private:
  store::Store& store_;
  RequestMaker& maker_;
  BatchRunner& runner_;
};

}  // namespace

void add_batch_routes(http::Router& router, const TenantOf& tenant_of, store::Store& store,
                      RequestMaker& maker, BatchRunner& runner) {
  const auto batches = std::make_shared<Batches>(store, maker, runner);
  const auto add = [&](const char* method, const char* rest,
                       void (Batches::*handler)(const Reply&)) {
    router.add(method, std::string("/v1/batches") + rest,
               [batches, handler, tenant_of](std::shared_ptr<http::Exchange> exchange,
                                             const http::Request& request) {
                 ((*batches).*handler)({.exchange = std::move(exchange),
                                        .tenant = tenant_of(request),
                                        .id = std::string(request.path_param("id"))});
               });
  };
  add("POST", "", &Batches::create);
  add("GET", "", &Batches::list);
  add("GET", "/{id}", &Batches::get);
  add("POST", "/{id}/cancel", &Batches::cancel);
}

}  // namespace hadal::serving
