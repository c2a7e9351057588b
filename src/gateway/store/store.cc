#include "gateway/store/store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/core/log.h"
#include "gateway/store/schema.h"

namespace hadal::store {
namespace {

constexpr auto kTidyEvery = std::chrono::seconds(30);
// Tasks of one commit: bounds how long the first waits for its acknowledgement.
constexpr size_t kMostInOneCommit = 256;

}  // namespace

core::Result<std::unique_ptr<Store>> Store::open(StoreConfig config) {
  if (!config.limits.now) {
    config.limits.now = [] {
      return std::chrono::duration_cast<std::chrono::seconds>(
                 std::chrono::system_clock::now().time_since_epoch())
          .count();
    };
  }
  const auto named = [&](core::Error error) {
    error.message = fmt::format("{}: {}", config.path, error.message);
    error.param = "store.path";
    return error;
  };
  auto db = Database::open(config.path);
  if (!db) return named(db.error());
  if (const core::Status ready = prepare_schema(*db); !ready) return named(ready.error());
  std::unique_ptr<Store> store(new Store(std::move(config), std::move(*db)));
  return store;
}

Store::Store(StoreConfig config, Database db)
    : config_(std::move(config)),
      db_(std::move(db)),
      tables_{{db_, config_.limits},
              {db_, config_.limits},
              {db_, config_.limits},
              {db_, config_.limits},
              db_},
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Store::~Store() {
  close();
}

void Store::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void Store::push(Task task) {
  std::optional<core::Error> refused;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      refused = {core::Code::kUnavailable, "the server is shutting down; try again later"};
    } else if (tasks_.size() >= kMostWaiting) {
      refused = {core::Code::kOverloaded, "too many requests wait for the store"};
    } else {
      tasks_.push_back(std::move(task));
    }
  }
  if (refused) return task.done(*std::move(refused));
  news_.notify_one();
}

void Store::run(const std::stop_token& stop) {
  std::vector<Task> tasks;
  auto tidied = std::chrono::steady_clock::time_point();
  while (true) {
    tasks.clear();
    {
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, stop, kTidyEvery, [&] { return !tasks_.empty(); });
      if (tasks_.empty() && stop.stop_requested()) return;
      const auto end =
          tasks_.begin() + static_cast<ptrdiff_t>(std::min(tasks_.size(), kMostInOneCommit));
      tasks.assign(std::move_iterator(tasks_.begin()), std::move_iterator(end));
      tasks_.erase(tasks_.begin(), end);
    }
    if (!tasks.empty()) run_tasks(tasks);
    if (const auto now = std::chrono::steady_clock::now(); now - tidied >= kTidyEvery) {
      tidied = now;
      tidy();
    }
  }
}

void Store::run_tasks(std::vector<Task>& tasks) {
  std::vector<core::Status> results(tasks.size());
  const core::Status committed = db_.transaction([&]() -> core::Status {
    for (size_t i = 0; i < tasks.size(); ++i) {
      results[i] = db_.savepoint([&] { return tasks[i].work(tables_); });
      if (!db_.in_transaction()) return results[i];
    }
    return {};
  });
  // One that needs more than there is ends the transaction of all.
  if (!committed) {
    for (size_t i = 0; i < tasks.size(); ++i)
      results[i] = db_.transaction([&] { return tasks[i].work(tables_); });
  }
  for (size_t i = 0; i < tasks.size(); ++i) tasks[i].done(std::move(results[i]));
}

void Store::tidy() {
  const core::Status done = db_.transaction([&]() -> core::Status {
    HADAL_TRY_VOID(tables_.responses.forget_expired());
    HADAL_TRY_VOID(tables_.conversations.forget_expired());
    HADAL_TRY_VOID(tables_.files.forget_expired());
    return tables_.batches.forget_expired();
  });
  core::Status shrunk = done;
  if (shrunk && !in_memory()) shrunk = db_.script("PRAGMA incremental_vacuum(4096)");
  if (!shrunk) HADAL_LOG(kWarning, "store", "could not tidy up: {}", shrunk.error().message);
}

}  // namespace hadal::store
