#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <unistd.h>

#include "gateway/recipe/json_value.h"
#include "gateway/serving/batch_job.h"
#include "gateway/serving/batch_line.h"
#include "main/batch_lines.h"
#include "main/commands.h"
#include "main/engine_stack.h"
#include "main/terminal.h"

namespace hadal::main {
namespace {

using Clock = std::chrono::steady_clock;
using serving::BatchResult;
using serving::BatchResults;

constexpr uint32_t kMostInFlight = 512;  // choices; below the engine's queue
constexpr auto kSyncEvery = std::chrono::seconds(1);
constexpr auto kLookAround = std::chrono::milliseconds(100);

// How far the run is, on stderr if that is a terminal.
class Progress {
 public:
  Progress(uint64_t n_before, uint64_t n_all) : n_done_(n_before), n_all_(n_all) {}

  void count(const BatchResult& result) {
    ++n_done_;
    ++n_here_;
    n_tokens_ += result.n_tokens;
    n_refused_ += result.refused ? 1 : 0;
  }
  void show() {
    const Clock::time_point now = Clock::now();
    if (!terminal_ || now - shown_ < std::chrono::milliseconds(200)) return;
    shown_ = now;
    constexpr uint64_t kWidth = 30;
    const uint64_t filled = n_all_ == 0 ? kWidth : std::min(kWidth, n_done_ * kWidth / n_all_);
    const double s = std::max(1e-3, std::chrono::duration<double>(now - began_).count());
    fmt::print(stderr, "\r\x1b[K[{}{}] {}/{} lines, {} refused, {:.0f} tokens/s",
               std::string(filled, '#'), std::string(kWidth - filled, '.'), n_done_, n_all_,
               n_refused_, static_cast<double>(n_tokens_) / s);
    if (n_here_ > 0 && n_done_ < n_all_)
      fmt::print(stderr, ", {:.0f} s left",
                 s / static_cast<double>(n_here_) * static_cast<double>(n_all_ - n_done_));
    std::fflush(stderr);
  }
  void end() const {
    const double s = std::chrono::duration<double>(Clock::now() - began_).count();
    fmt::print(stderr, "{}{} lines answered, {} of them refused, {} tokens in {:.1f} s\n",
               terminal_ ? "\r\x1b[K" : "", n_here_, n_refused_, n_tokens_, s);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_{};
  uint64_t n_done_, n_here_ = 0, n_tokens_ = 0, n_refused_ = 0;
  const uint64_t n_all_;
};

class Generator {
 public:
  Generator(EngineStack& stack, uint32_t max_in_flight)
      : stack_(stack),
        maker_(maker_config(stack), stack.tokenizer(), stack.engine(), nullptr),
        max_in_flight_(max_in_flight) {}

  core::Status run(LineReader& reader, BatchOutput& output, Progress& progress) {
    std::string line;
    uint64_t number = 0;
    bool more = true;
    Clock::time_point synced = Clock::now();
    while (true) {
      while (more && n_in_flight_ < max_in_flight_) {
        more = reader.next(line, number);
        if (more && !output.has(batch_key(line, number))) start(line, number);
        // A long way through lines that are done, or refused at once, keeps nobody waiting.
        if (n_refused_waiting_ >= kMostInFlight) break;
      }
      n_refused_waiting_ = 0;
      if (!more && n_in_flight_ == 0 && !has_refused_) break;
      has_refused_ = false;
      for (const BatchResult& result : results_.take(kLookAround)) {
        n_in_flight_ -= result.n_choices;
        HADAL_TRY_VOID(output.append(result.line));
        progress.count(result);
      }
      if (Clock::now() - synced >= kSyncEvery) {
        HADAL_TRY_VOID(output.sync());
        synced = Clock::now();
      }
      progress.show();
    }
    return output.sync();
  }

 private:
  void answer_now(BatchResult result) {
    results_.push(std::move(result));
    count_refused();
  }
  void count_refused() {
    has_refused_ = true;
    ++n_refused_waiting_;
  }

  static serving::RequestMaker::Config maker_config(const EngineStack& stack) {
    serving::RequestMaker::Config config{
        .codec = {}, .end_token = stack.config().eos_token, .script = stack.is_script()};
    config.codec.remote_pictures = false;
    if (!stack.is_script()) {
      config.codec.context_limit = static_cast<uint32_t>(
          std::min<int64_t>(stack.config().max_positions, config.codec.context_limit));
    }
    return config;
  }

  void start(const std::string& line, uint64_t number) {
    serving::BatchIdentity identity{.number = number};
    serving::BatchLine read;
    const core::Status good = serving::read_batch_line(line, read);
    if (read.has_custom_id) {
      identity.custom_id_json.clear();
      recipe::append_json_string(identity.custom_id_json, read.custom_id);
    }
    if (!good) {
      return answer_now(serving::refused_line(
          identity, "invalid_line", fmt::format("line {}: {}", number, good.error().message)));
    }
    const auto job = serving::start_batch_line(
        maker_, stack_.engine(), *read.dialect, std::move(read.body),
        {.tenant = {}, .history = {}, .offline = true}, std::move(identity), results_);
    if (job != nullptr) {
      n_in_flight_ += job->n_choices();
    } else {
      count_refused();
    }
  }

  EngineStack& stack_;
  serving::RequestMaker maker_;
  const uint32_t max_in_flight_;
  BatchResults results_;
  uint32_t n_in_flight_ = 0;        // choices
  uint32_t n_refused_waiting_ = 0;  // results that never were in flight, not yet written
  bool has_refused_ = false;
};

core::Status generate(const GenerateOptions& options) {
  HADAL_TRY(const uint64_t n_lines, count_batch_lines(options.input));
  HADAL_TRY(BatchOutput output, BatchOutput::open(options.output, options.input));
  HADAL_TRY(LineReader reader, LineReader::open(options.input));
  const uint64_t n_before = output.size();
  if (n_before > 0)
    fmt::print(stderr, "{} holds {} of {} results already; going on\n", options.output, n_before,
               n_lines);
  metrics::Registry registry;
  EngineSettings settings;
  settings.model = options.model;
  settings.max_running = options.max_running;
  std::unique_ptr<EngineStack> stack;
  {
    const WaitNote note("loading the model:");
    HADAL_TRY(stack, EngineStack::make(settings, registry));
  }
  // Twice what runs: who finishes is replaced at once.
  const uint32_t running = options.max_running != 0 ? options.max_running
                           : stack->is_script()     ? kMostInFlight
                                                    : 16;
  Generator generator(*stack, std::min(kMostInFlight, 2 * running));
  Progress progress(n_before, n_lines);
  const core::Status done = generator.run(reader, output, progress);
  // The engine ends before what its sinks point to.
  stack->engine().drain(std::chrono::milliseconds(0));
  HADAL_TRY_VOID(done);
  progress.end();
  return {};
}

}  // namespace

int cmd_generate(const GenerateOptions& options) {
  const core::Status done = generate(options);
  if (done) return 0;
  fmt::print(stderr, "hadal generate: {}\n", done.error().message);
  return 1;
}

}  // namespace hadal::main
