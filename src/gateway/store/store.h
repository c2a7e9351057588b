#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/core/result.h"
#include "gateway/store/batches.h"
#include "gateway/store/conversations.h"
#include "gateway/store/database.h"
#include "gateway/store/files.h"
#include "gateway/store/limits.h"
#include "gateway/store/responses.h"

namespace hadal::store {

struct StoreConfig {
  std::string path;  // "": in memory, gone with the process
  Limits limits;     // `now` may be empty: the system's clock
};

// What a task may touch; only on the store's thread.
struct Tables {
  Responses responses;
  Conversations conversations;
  Files files;
  Batches batches;
  Database& db;
};

// Everything that outlives a request, in one SQLite file, behind one thread. Tasks of any thread
// run there in order, many in one commit. A task that fails leaves no trace and costs no other one
// anything; when a commit fails, each of its tasks gets its own.
//
// Errors that reach `done`, besides a task's own: those of Database, and kOverloaded when
// kMostWaiting tasks wait.
class Store {
 public:
  static core::Result<std::unique_ptr<Store>> open(StoreConfig config);
  ~Store();
  // Runs what was posted, then ends; posts from then on are refused with kUnavailable. For the end
  // of a process, before those are destroyed whom `done` calls.
  void close();

  // `work` may run twice and must not consume what it captured. `done` runs on the store's thread
  // after the commit: what it acknowledges is kept. It must not block, nor call call().
  template <typename T>
  void post(std::function<core::Result<T>(Tables&)> work,
            std::function<void(core::Result<T>)> done) {
    auto result = std::make_shared<std::optional<core::Result<T>>>();
    push({[work = std::move(work), result](Tables& tables) -> core::Status {
            result->emplace(work(tables));
            if (!**result) return (*result)->error();
            return {};
          },
          [result, done = std::move(done)](core::Status status) {
            if (!status) return done(std::move(status).error());
            done(std::move(**result));
          }});
  }
  // The same, and waits. From any thread but the store's.
  template <typename T>
  core::Result<T> call(std::function<core::Result<T>(Tables&)> work) {
    std::promise<core::Result<T>> promise;
    auto future = promise.get_future();
    post<T>(std::move(work), [&promise](core::Result<T> r) { promise.set_value(std::move(r)); });
    return future.get();
  }

  bool in_memory() const { return config_.path.empty(); }
  int64_t now() const { return config_.limits.now(); }

  static constexpr size_t kMostWaiting = 20'000;

 private:
  struct Task {
    std::function<core::Status(Tables&)> work;
    std::function<void(core::Status)> done;
  };
  Store(StoreConfig config, Database db);
  void push(Task task);
  void run(const std::stop_token& stop);
  void run_tasks(std::vector<Task>& tasks);
  void tidy();

  const StoreConfig config_;
  Database db_;       // the store's thread, after open()
  Tables tables_;     // likewise
  std::mutex mutex_;  // guards tasks_ and closed_
  std::condition_variable_any news_;
  std::vector<Task> tasks_;
  bool closed_ = false;
  std::jthread thread_;  // last: it uses what stands above
};

}  // namespace hadal::store
