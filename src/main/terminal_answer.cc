#include "main/terminal_answer.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gateway/recipe/decoder.h"
#include "gateway/recipe/text_assembler.h"

namespace hadal::main {
namespace {

// How late a Ctrl-C may be seen.
constexpr auto kLookAround = std::chrono::milliseconds(30);

struct Piece {
  bool is_reasoning;
  std::string text;
};

// Takes tokens on the engine's thread and hands text to the thread that prints: a terminal that
// does not read must not stop the engine. Bounded by the request's max_tokens.
class Collector final : public types::TokenSink, private recipe::DecoderSink {
 public:
  Collector(const recipe::Vocabulary& vocabulary, recipe::ParsePlan plan, bool raw)
      : plan_(std::move(plan)),
        decoder_(plan_, *this, {.logprobs = false, .raw = raw}),
        assembler_(vocabulary, decoder_, false) {}

  types::SinkAnswer on_tokens(std::span<const types::TokenEvent> events, size_t& n_taken) override {
    const std::lock_guard lock(mutex_);
    n_taken = 0;
    while (n_taken < events.size() && !decoder_.stopped()) assembler_.push(events[n_taken++]);
    news_.notify_one();
    return decoder_.stopped() ? types::SinkAnswer::kStop : types::SinkAnswer::kContinue;
  }

  void on_done(const types::Completion& completion) override {
    const std::lock_guard lock(mutex_);
    if (!decoder_.stopped()) assembler_.finish();
    decoder_.finish(completion.reason);
    done_ = completion;
    news_.notify_one();
  }

  // Moves out what came; waits a moment if nothing did. True: that was the end.
  bool take(std::vector<Piece>& pieces, std::optional<types::Completion>& done) {
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, kLookAround, [&] { return !pieces_.empty() || done_.has_value(); });
    pieces.clear();
    std::swap(pieces, pieces_);
    done = done_;
    return done.has_value();
  }

 private:
  void add(bool is_reasoning, std::string_view text) {
    if (pieces_.empty() || pieces_.back().is_reasoning != is_reasoning)
      pieces_.push_back({is_reasoning, {}});
    pieces_.back().text.append(text);
  }
  void on_reasoning(std::string_view text, recipe::Logprobs) override { add(true, text); }
  void on_content(std::string_view text, recipe::Logprobs) override { add(false, text); }
  // No tool is ever declared here, so a call is not read as one.
  void on_call(std::string_view) override {}
  void on_arguments(std::string_view) override {}
  void on_call_end(bool) override {}

  const recipe::ParsePlan plan_;
  std::mutex mutex_;  // guards all below
  std::condition_variable news_;
  recipe::Decoder decoder_;
  recipe::TextAssembler assembler_;
  std::vector<Piece> pieces_;
  std::optional<types::Completion> done_;
};

}  // namespace

core::Result<ShownAnswer> show_answer(types::EnginePort& engine, types::Request request,
                                      const recipe::Vocabulary& vocabulary, recipe::ParsePlan plan,
                                      bool raw, AnswerPrinter& printer, Interrupts& interrupts) {
  const types::RequestId id = request.id;
  const auto sink = std::make_shared<Collector>(vocabulary, std::move(plan), raw);
  std::optional<WaitNote> note;
  note.emplace("reading the prompt:");
  HADAL_TRY_VOID(engine.submit(std::move(request), sink));
  ShownAnswer shown;
  core::Status written;
  std::vector<Piece> pieces;
  std::optional<types::Completion> done;
  while (!done) {
    sink->take(pieces, done);
    if (interrupts.take() > 0) {
      shown.interrupted = true;
      engine.cancel(id);
    }
    if (!pieces.empty()) note.reset();
    for (const Piece& piece : pieces) {
      (piece.is_reasoning ? shown.reasoning : shown.content).append(piece.text);
      if (!written.has_value()) continue;
      if (piece.is_reasoning) {
        printer.reasoning(piece.text);
      } else {
        printer.content(piece.text);
      }
    }
    if (!pieces.empty() && written.has_value()) {
      written = printer.flush();
      if (!written.has_value()) engine.cancel(id);
    }
  }
  note.reset();
  if (written.has_value()) written = printer.end();
  if (!written.has_value()) return written.error();
  if (done->reason == types::FinishReason::kError || done->reason == types::FinishReason::kDeadline)
    return core::Error{core::Code::kInternal, done->error};
  shown.completion = std::move(*done);
  return shown;
}

}  // namespace hadal::main
