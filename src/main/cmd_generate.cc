#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>

#include <fmt/format.h>
#include <unistd.h>

#include "base/metrics/trace.h"
#include "gateway/anthropic/response_factory.h"
#include "gateway/recipe/error_body.h"
#include "gateway/recipe/tokenizer_vocabulary.h"
#include "gateway/serving/dialects.h"
#include "gateway/serving/engine_request.h"
#include "main/batch_job.h"
#include "main/batch_lines.h"
#include "main/commands.h"
#include "main/engine_stack.h"
#include "main/terminal.h"

namespace hadal::main {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMostInFlight = 512;  // choices; below the engine's queue
constexpr auto kSyncEvery = std::chrono::seconds(1);
constexpr auto kLookAround = std::chrono::milliseconds(100);
constexpr int kLineDepth = 130;

const serving::Dialect* dialect_of(std::string_view url) {
  for (const serving::Dialect& dialect : serving::dialects()) {
    if (std::find(dialect.paths.begin(), dialect.paths.end(), url) != dialect.paths.end())
      return &dialect;
  }
  return nullptr;
}

std::string known_urls() {
  std::string out;
  for (const serving::Dialect& dialect : serving::dialects())
    out += fmt::format("{}{}", out.empty() ? "" : ", ", dialect.paths.front());
  return out;
}

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
      : stack_(stack), vocabulary_(stack.tokenizer()), max_in_flight_(max_in_flight) {
    std::random_device random;
    salt_ = (uint64_t{random()} << 32) | random();
    if (!stack.is_script())
      codec_.context_limit = static_cast<uint32_t>(
          std::min<int64_t>(stack.config().max_positions, codec_.context_limit));
    codec_.remote_pictures = false;
  }

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
    has_refused_ = true;
    ++n_refused_waiting_;
  }

  void start(const std::string& line, uint64_t number) {
    BatchIdentity identity;
    identity.line_id = batch_line_id(number);
    recipe::JsonDoc doc;
    const core::Status parsed = doc.parse(line, kLineDepth);
    if (!parsed || !doc.root().is_object())
      return answer_now(refused_line(
          identity, fmt::format("line {} is no JSON object{}{}", number, parsed ? "" : ": ",
                                parsed ? "" : parsed.error().message)));
    const recipe::JsonValue root = doc.root();
    const auto refuse = [&](std::string_view why) {
      answer_now(refused_line(identity, fmt::format("line {}: {}", number, why)));
    };
    if (!root["custom_id"].is_string()) return refuse("custom_id must be a string");
    identity.custom_id_json.clear();
    recipe::append_json_string(identity.custom_id_json, root["custom_id"].str());
    if (root["method"].str() != "POST") return refuse("method must be \"POST\"");
    const serving::Dialect* dialect = dialect_of(root["url"].str());
    if (dialect == nullptr) return refuse("url must be one of " + known_urls());
    if (!root["body"].is_object()) return refuse("body must be an object");
    identity.request_id = fmt::format("{}{:016x}{:08x}", dialect->id_prefix, salt_, number);
    const core::Status begun =
        begin(*dialect, identity, std::string(doc.source(root["body"])), number);
    if (!begun)
      answer_now(result_line(identity, recipe::http_status(begun.error().code),
                             recipe::error_body(begun.error(), dialect->api, false), 0));
  }

  core::Status begin(const serving::Dialect& dialect, const BatchIdentity& identity,
                     std::string body, uint64_t number) {
    HADAL_TRY(recipe::CodecRequest codec, dialect.parse(std::move(body), codec_));
    if (codec.response.stream)
      return core::Error{core::Code::kInvalidRequest,
                         "a batch's answers are not streamed; leave stream out", "stream"};
    HADAL_TRY(types::Request made,
              serving::make_engine_request(codec, codec_,
                                           {.tokenizer = &stack_.tokenizer(),
                                            .limits = stack_.engine().limits(),
                                            .end_token = stack_.config().eos_token,
                                            .seed = metrics::scattered_id(salt_, number),
                                            .script = stack_.is_script()}));
    recipe::Usage prompt;
    prompt.prompt_tokens = static_cast<uint32_t>(made.prompt.size());
    recipe::ResponseIdentity names;
    names.id = identity.request_id;
    names.created = std::time(nullptr);
    names.fingerprint = "hadal";
    names.seed = salt_ ^ (number * 0x9e3779b97f4a7c15u);
    names.now = [] { return std::time(nullptr); };
    const uint32_t n = std::max(1u, codec.sampling.n);
    std::vector<types::TokenId> prompt_ids;
    if (codec.extension.return_token_ids) prompt_ids = made.prompt;
    auto stream = anthropic::make_response_stream(std::move(codec.parse), std::move(codec.response),
                                                  std::move(codec.extension), vocabulary_,
                                                  std::move(names), std::move(prompt_ids));
    std::vector<types::Request> requests(n, made);
    for (uint32_t choice = 0; choice < n; ++choice) {
      requests[choice].id = types::RequestId{++last_request_};
      requests[choice].sampling.stream = choice;
    }
    const auto job = std::make_shared<BatchJob>(BatchJob::Parts{.identity = identity,
                                                                .text = std::move(codec.text),
                                                                .stream = std::move(stream),
                                                                .api = dialect.api,
                                                                .results = &results_});
    n_in_flight_ += n;
    job->start(stack_.engine(), std::move(requests), prompt);
    return {};
  }

  EngineStack& stack_;
  const recipe::TokenizerVocabulary vocabulary_;
  const uint32_t max_in_flight_;
  recipe::CodecOptions codec_;
  uint64_t salt_ = 0;
  BatchResults results_;
  uint64_t last_request_ = 0;
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
