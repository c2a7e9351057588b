#include "gateway/serving/batch_runner.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "base/core/log.h"
#include "gateway/recipe/json_writer.h"
#include "gateway/serving/batch_line.h"

namespace hadal::serving {
namespace {

using store::BatchState;
using store::StoredBatch;
using store::Tables;

constexpr size_t kMostActive = 16;  // batches worked on at a time; the others wait
constexpr uint64_t kLookAhead = 1000;
constexpr uint32_t kLinesATurn = 8;  // of one batch before the next one's turn
constexpr size_t kMostFileErrors = 50;
constexpr auto kLookAround = std::chrono::seconds(1);
constexpr auto kPatience = std::chrono::milliseconds(50);
constexpr auto kBackOff = std::chrono::milliseconds(250);
// What an operator ends once (/admin/abort ends all that runs) is made again. Ended again, it may
// be what is wrong, and has an error for a result.
constexpr uint32_t kMostAborts = 2;

// The list of what is wrong with an input file, as the API shows it.
class FileErrors {
 public:
  void add(std::string_view code, std::string_view message, std::string_view param, uint64_t line) {
    if (++n_ > kMostFileErrors) return;
    json_ += json_.empty() ? R"({"code":)" : R"(,{"code":)";
    recipe::append_quoted(json_, code);
    json_ += R"(,"message":)";
    recipe::append_quoted(json_, message);
    json_ += R"(,"param":)";
    recipe::append_quoted_or_null(json_, param);
    json_ += line == 0 ? R"(,"line":null})" : fmt::format(R"(,"line":{}}})", line);
  }
  bool empty() const { return n_ == 0; }
  std::string list() const { return "[" + json_ + "]"; }

 private:
  size_t n_ = 0;
  std::string json_;
};

}  // namespace

BatchRunner::BatchRunner(const Config& config, store::Store& store, RequestMaker& maker,
                         types::EnginePort& engine)
    : config_(config), store_(store), maker_(maker), engine_(engine) {}

BatchRunner::~BatchRunner() {
  stop();
}

void BatchRunner::start() {
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void BatchRunner::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  news_.notify_one();
}

void BatchRunner::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void BatchRunner::run(const std::stop_token& stop) {
  Clock::time_point looked{};
  while (!stop.stop_requested()) {
    bool look = false;
    {
      const std::lock_guard lock(mutex_);
      look = std::exchange(woken_, false);
    }
    core::Status status;
    if (look || Clock::now() - looked >= kLookAround) {
      looked = Clock::now();
      status = find_batches();
    }
    for (auto at = active_.begin(); at != active_.end();) {
      Active& batch = at->second;
      if (core::Status advanced = advance(batch); !advanced) status = std::move(advanced);
      at = is_open(batch.row.state) ? std::next(at) : active_.erase(at);
    }
    if (!status) {
      // Nothing is lost: results stay here, or their lines are begun again.
      HADAL_LOG(kError, "batches", "the store fails, trying again: {}", status.error().message);
      std::this_thread::sleep_for(kBackOff);
    }
    if (in_flight_.empty()) {
      collect(std::chrono::milliseconds(0), false);
      wait(stop);
    } else {
      collect(kPatience, false);
    }
  }
  cancel_jobs(nullptr);
  while (!in_flight_.empty()) collect(kPatience, true);
  for (auto& [seq, batch] : active_) {
    if (const core::Status kept = write_results(batch); !kept)
      HADAL_LOG(kWarning, "batches", "{} results will be made again: {}", batch.unwritten.size(),
                kept.error().message);
  }
}

// Nothing runs: until a wake, or while lines wait for the engine or the store.
void BatchRunner::wait(const std::stop_token& stop) {
  const bool busy = std::any_of(active_.begin(), active_.end(), [](const auto& entry) {
    return !entry.second.unwritten.empty() || !entry.second.at_end || entry.second.ending();
  });
  std::unique_lock lock(mutex_);
  const auto until = busy ? std::max(engine_full_until_, Clock::now())
                          : Clock::now() + std::chrono::milliseconds(kLookAround);
  news_.wait_until(lock, stop, until, [&] { return woken_; });
}

core::Status BatchRunner::find_batches() {
  HADAL_TRY(const std::vector<StoredBatch> rows,
            store_.call<std::vector<StoredBatch>>(
                [](Tables& tables) { return tables.batches.open_batches(); }));
  for (const StoredBatch& row : rows) {
    const auto known = active_.find(row.seq);
    if (known == active_.end()) {
      if (active_.size() < kMostActive) active_.try_emplace(row.seq, store_, row);
    } else if (row.state == BatchState::kCancelling &&
               known->second.row.state != BatchState::kCancelling) {
      known->second.row.state = row.state;
      known->second.row.cancelling = row.cancelling;
      cancel_jobs(&known->second);
    }
  }
  return {};
}

// What a client did meanwhile wins: a batch that is to be cancelled does not begin.
core::Status BatchRunner::update(Active& batch) {
  HADAL_TRY(
      batch.row,
      store_.call<StoredBatch>([row = batch.row](Tables& tables) -> core::Result<StoredBatch> {
        StoredBatch next = row;
        HADAL_TRY(const StoredBatch now, tables.batches.at(row.seq));
        if (now.state == BatchState::kCancelling && next.state == BatchState::kInProgress) {
          next.state = now.state;
          next.cancelling = now.cancelling;
        }
        HADAL_TRY_VOID(tables.batches.update(next));
        return next;
      }));
  return {};
}

core::Status BatchRunner::validate(Active& batch) {
  FileErrors errors;
  std::unordered_set<std::string> custom_ids;
  BatchInput input(store_, batch.row.tenant, batch.row.input_file);
  BatchInput::Line line;
  BatchLine read;
  uint64_t n = 0;
  while (n <= kMostLines) {
    const auto more = input.next(line);
    if (!more && more.error().code == core::Code::kNotFound) {
      errors.add("invalid_file", "the input file was deleted", "input_file_id", 0);
      break;
    }
    if (!more) return more.error();
    if (!*more) break;
    ++n;
    if (const core::Status good = read_batch_line(line.text, read); !good) {
      errors.add("invalid_line", good.error().message, good.error().param, line.number);
    } else if (read.dialect != dialect_of_path(batch.row.endpoint)) {
      errors.add("mismatched_url", fmt::format("the url is not {}", batch.row.endpoint), "url",
                 line.number);
    } else if (!custom_ids.insert(read.custom_id).second) {
      errors.add("duplicate_custom_id",
                 fmt::format("another line has the custom_id {}", read.custom_id), "custom_id",
                 line.number);
    }
  }
  if (n == 0 && errors.empty())
    errors.add("empty_file", "the input file has no line", "input_file_id", 0);
  if (n > kMostLines) {
    errors.add("too_many_lines", fmt::format("a batch has at most {} lines", kMostLines),
               "input_file_id", 0);
  }
  if (errors.empty()) {
    batch.row.n_total = n;
    batch.row.state = BatchState::kInProgress;
    batch.row.in_progress = store_.now();
  } else {
    batch.row.errors = errors.list();
    batch.row.state = BatchState::kFailed;
    batch.row.failed = store_.now();
  }
  return update(batch);
}

core::Status BatchRunner::advance(Active& batch) {
  if (batch.row.state == BatchState::kValidating) HADAL_TRY_VOID(validate(batch));
  if (!is_open(batch.row.state)) return {};
  HADAL_TRY_VOID(write_results(batch));
  if (!batch.ending() && store_.now() >= batch.row.expires) {
    batch.expired = true;
    cancel_jobs(&batch);
  }
  if (!batch.ending()) {
    BatchInput::Line line;
    for (uint32_t i = 0; i < kLinesATurn && has_room(); ++i) {
      HADAL_TRY(const bool more, next_line(batch, line));
      if (!more) break;
      begin_line(batch, std::move(line));
    }
  }
  if (batch.n_in_flight > 0) return {};
  if (batch.row.state == BatchState::kCancelling) return finish(batch);
  if (batch.expired) {
    HADAL_TRY_VOID(expire_rest(batch));
    return finish(batch);
  }
  if (batch.at_end && batch.again.empty() && batch.unwritten.empty()) return finish(batch);
  return {};
}

// The next line without a result.
core::Result<bool> BatchRunner::next_line(Active& batch, BatchInput::Line& line) {
  if (!batch.again.empty()) {
    line = std::move(batch.again.front());
    batch.again.pop_front();
    return true;
  }
  while (!batch.at_end) {
    HADAL_TRY(const bool more, batch.input.next(line));
    if (!more) {
      batch.at_end = true;
      break;
    }
    if (line.number >= batch.looked_up_to) {
      HADAL_TRY(const std::vector<uint64_t> done,
                store_.call<std::vector<uint64_t>>(
                    [seq = batch.row.seq, from = line.number](Tables& tables) {
                      return tables.batches.lines_done(seq, from, kLookAhead);
                    }));
      batch.done = std::set<uint64_t>(done.begin(), done.end());
      batch.looked_up_to = line.number + kLookAhead;
    }
    if (!batch.done.contains(line.number)) return true;
  }
  return false;
}

bool BatchRunner::has_room() const {
  return n_choices_ < config_.max_in_flight && in_flight_bytes_ < config_.max_in_flight_bytes &&
         Clock::now() >= engine_full_until_;
}

BatchIdentity BatchRunner::identity_of(const Active& batch, const BatchInput::Line& line) {
  BatchIdentity identity{.batch = batch.row.seq, .number = line.number};
  BatchLine read;
  const core::Status good = read_batch_line(line.text, read);
  if (good && read.has_custom_id) {
    identity.custom_id_json.clear();
    recipe::append_quoted(identity.custom_id_json, read.custom_id);
  }
  return identity;
}

void BatchRunner::aborted(Active& batch, BatchInput::Line line) {
  if (++batch.n_aborts[line.number] < kMostAborts) {
    batch.again.push_back(std::move(line));
    return;
  }
  BatchResult result =
      refused_line(identity_of(batch, line), "aborted",
                   fmt::format("an operator of the server ended this line {} times", kMostAborts));
  HADAL_LOG(kWarning, "batches", "{}: line {} was aborted {} times and is given up", batch.row.id,
            line.number, kMostAborts);
  batch.unwritten.push_back({line.number, true, std::move(result.line)});
}

void BatchRunner::begin_line(Active& batch, BatchInput::Line line) {
  BatchIdentity identity{.batch = batch.row.seq, .number = line.number};
  InFlight& entry = in_flight_[{batch.row.seq, line.number}];
  in_flight_bytes_ += line.text.size();
  ++batch.n_in_flight;
  BatchLine read;
  const core::Status good = read_batch_line(line.text, read);
  if (read.has_custom_id) {
    identity.custom_id_json.clear();
    recipe::append_quoted(identity.custom_id_json, read.custom_id);
  }
  entry.line = std::move(line);
  if (!good) {
    results_.push(refused_line(identity, "invalid_line", good.error().message));
    return;
  }
  entry.job = start_batch_line(
      maker_, engine_, *read.dialect, std::move(read.body),
      {.tenant = batch.row.tenant, .history = {}, .priority = config_.priority, .offline = true},
      std::move(identity), results_);
  entry.n_choices = entry.job != nullptr ? entry.job->n_choices() : 0;
  n_choices_ += entry.n_choices;
}

void BatchRunner::collect(std::chrono::milliseconds patience, bool stopping) {
  for (BatchResult& result : results_.take(patience)) {
    auto entry = in_flight_.extract({result.batch, result.number});
    Active& batch = active_.at(result.batch);
    n_choices_ -= entry.mapped().n_choices;
    in_flight_bytes_ -= entry.mapped().line.text.size();
    --batch.n_in_flight;
    if (result.cut) {
      const bool cut_by_us = result.cut == core::Code::kCancelled && (stopping || batch.ending());
      if (!cut_by_us) engine_full_until_ = Clock::now() + kBackOff;
      if (cut_by_us || result.cut != core::Code::kCancelled) {
        batch.again.push_back(std::move(entry.mapped().line));
      } else {
        aborted(batch, std::move(entry.mapped().line));
      }
      continue;
    }
    batch.unwritten.push_back({result.number, result.refused, std::move(result.line)});
  }
}

core::Status BatchRunner::write_results(Active& batch) {
  if (batch.unwritten.empty()) return {};
  HADAL_TRY(batch.row.n_completed,
            store_.call<uint64_t>([seq = batch.row.seq, &results = batch.unwritten](
                                      Tables& tables) -> core::Result<uint64_t> {
              HADAL_TRY_VOID(tables.batches.add_results(seq, results));
              HADAL_TRY(const StoredBatch row, tables.batches.at(seq));
              return row.n_completed;
            }));
  batch.unwritten.clear();
  return {};
}

// A line that was not reached in time has an error for a result.
core::Status BatchRunner::expire_rest(Active& batch) {
  BatchInput::Line line;
  while (true) {
    HADAL_TRY(const bool more, next_line(batch, line));
    if (more) {
      BatchResult result = refused_line(identity_of(batch, line), "batch_expired",
                                        "this line was not reached within the completion window");
      batch.unwritten.push_back({line.number, true, std::move(result.line)});
    }
    if (!more || batch.unwritten.size() >= kLookAhead) HADAL_TRY_VOID(write_results(batch));
    if (!more) return {};
  }
}

core::Status BatchRunner::finish(Active& batch) {
  HADAL_TRY_VOID(write_results(batch));
  const int64_t now = store_.now();
  StoredBatch row = batch.row;
  row.finalizing = now;
  if (row.state == BatchState::kCancelling) {
    row.state = BatchState::kCancelled;
    row.cancelled = now;
  } else if (batch.expired) {
    row.state = BatchState::kExpired;
    row.expired = now;
  } else {
    row.state = BatchState::kCompleted;
    row.completed = now;
  }
  HADAL_TRY(batch.row, store_.call<StoredBatch>([row, output = "file-" + maker_.new_name(),
                                                 errors = "file-" + maker_.new_name()](
                                                    Tables& tables) -> core::Result<StoredBatch> {
    StoredBatch done = row;
    HADAL_TRY_VOID(tables.batches.make_result_files(done, output, errors));
    HADAL_TRY_VOID(tables.batches.update(done));
    return done;
  }));
  HADAL_LOG(kInfo, "batches", "{} {}: {} lines", row.id, store::batch_state_name(row.state),
            row.n_total);
  return {};
}

void BatchRunner::cancel_jobs(const Active* of_batch) {
  for (auto& [key, entry] : in_flight_) {
    if (entry.job != nullptr && (of_batch == nullptr || key.first == of_batch->row.seq))
      entry.job->cancel(engine_);
  }
}

}  // namespace hadal::serving
