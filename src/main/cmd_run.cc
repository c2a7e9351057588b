#include <fstream>
#include <iterator>
#include <optional>
#include <random>

#include <fmt/format.h>
#include <unistd.h>

#include "gateway/recipe/chat_turns.h"
#include "gateway/recipe/text_assembler.h"
#include "gateway/recipe/tokenizer_vocabulary.h"
#include "main/commands.h"
#include "main/engine_stack.h"
#include "main/terminal_answer.h"
#include "main/terminal_line.h"

namespace hadal::main {
namespace {

using recipe::ChatTurn;
using recipe::Role;
using types::FinishReason;

constexpr uint32_t kDefaultAnswerTokens = 8192;

struct Thinking {
  bool on = false;
  uint32_t effort = 75;
};

std::optional<Thinking> thinking_of(std::string_view word) {
  if (word == "off") return Thinking{};
  if (word == "low") return Thinking{true, 50};
  if (word == "high") return Thinking{true, 75};
  if (word == "max") return Thinking{true, 100};
  return std::nullopt;
}

core::Error refused(std::string message) {
  return {core::Code::kInvalidRequest, std::move(message)};
}

core::Status check_text(std::string_view what, std::string_view text) {
  if (recipe::is_utf8(text)) return {};
  const auto valid_piece = [&](size_t at) {
    for (size_t n = 1; n <= 4; ++n) {
      if (recipe::is_utf8(text.substr(at, n))) return n;
    }
    return size_t{0};
  };
  size_t good = 0;
  while (const size_t n = valid_piece(good)) good += n;
  return refused(
      fmt::format("the {} is not valid UTF-8 at byte {}; convert it, for "
                  "example with iconv -f latin1 -t utf-8",
                  what, good));
}

// The conversation and the engine that answers it.
class Session {
 public:
  Session(const RunOptions& options, EngineStack& stack)
      : options_(options), stack_(stack), vocabulary_(stack.tokenizer()) {
    // The demo model was trained to be asked without thinking, and measured greedily.
    const bool demo = options.model.model_dir.empty();
    thinking_ = thinking_of(options.thinking).value_or(demo ? Thinking{} : Thinking{true, 75});
    sampling_.temperature = options.temperature.value_or(demo ? 0.0f : 1.0f);
    sampling_.top_k = options.top_k;
    sampling_.top_p = options.top_p;
    sampling_.min_p = options.min_p;
    sampling_.repetition_penalty = options.repetition_penalty;
    sampling_.presence_penalty = options.presence_penalty;
    sampling_.frequency_penalty = options.frequency_penalty;
    std::random_device random;
    sampling_.seed = options.seed.value_or((uint64_t{random()} << 32) | random());
    reset();
  }

  void reset() {
    turns_.clear();
    if (!options_.system.empty()) turns_.push_back({Role::kSystem, options_.system, {}});
  }
  void set_thinking(Thinking thinking) { thinking_ = thinking; }

  // Answers `text` and remembers both; on failure, or if nothing came, neither.
  core::Result<ShownAnswer> ask(const std::string& text, AnswerPrinter& printer,
                                Interrupts& interrupts) {
    if (text.find_first_not_of(" \t\r\n") == std::string::npos)
      return refused("the prompt is empty; write a question");
    HADAL_TRY_VOID(check_text("prompt", text));
    turns_.push_back({Role::kUser, text, {}});
    core::Result<ShownAnswer> shown = generate(text, printer, interrupts);
    if (!shown || (shown->content.empty() && shown->reasoning.empty())) {
      turns_.pop_back();
    } else {
      turns_.push_back({Role::kAssistant, shown->content, shown->reasoning});
    }
    return shown;
  }

 private:
  core::Result<ShownAnswer> generate(const std::string& text, AnswerPrinter& printer,
                                     Interrupts& interrupts) {
    types::Request request;
    if (options_.raw) {
      // Who writes the whole prompt writes its control tokens too.
      stack_.tokenizer().encode(text, tokenizer::Added::kMatch, request.prompt);
    } else {
      HADAL_TRY(request.prompt,
                recipe::encode_turns(turns_, thinking_.on, thinking_.effort, stack_.tokenizer()));
    }
    const types::EngineLimits limits = stack_.engine().limits();
    const uint32_t context = std::min(limits.max_context, limits.max_request_tokens);
    if (request.prompt.size() >= context) {
      return core::Error{
          core::Code::kContextTooLong,
          fmt::format("the conversation has {} tokens, and the model takes {} with its answer; "
                      "shorten the prompt{}",
                      request.prompt.size(), context,
                      turns_.size() > 2 ? ", or forget the earlier turns (/reset)" : "")};
    }
    const auto room = context - static_cast<uint32_t>(request.prompt.size());
    request.max_tokens =
        std::min(options_.max_tokens != 0 ? options_.max_tokens : kDefaultAnswerTokens, room);
    request.id = types::RequestId{++last_id_};
    request.sampling = sampling_;
    request.end_tokens = {static_cast<types::TokenId>(stack_.config().eos_token)};
    return show_answer(stack_.engine(), std::move(request), vocabulary_,
                       recipe::turns_plan(thinking_.on && !options_.raw), options_.raw, printer,
                       interrupts);
  }

  const RunOptions& options_;
  EngineStack& stack_;
  const recipe::TokenizerVocabulary vocabulary_;
  types::SamplingParams sampling_;
  Thinking thinking_;
  std::vector<ChatTurn> turns_;
  uint64_t last_id_ = 0;
};

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kHelp =
    "Write a question and press Enter. Ctrl-C stops an answer; Ctrl-C twice or Ctrl-D at the "
    "prompt leaves.\n"
    "  /reset                      forget the conversation\n"
    "  /thinking off|low|high|max  whether and how long to think before an answer\n"
    "  /help                       this text\n"
    "  /exit                       leave\n"
    "A line that shall be sent although it begins with / gets a space in front.\n";

// True: leave.
bool obey(std::string_view command, Session& session) {
  const size_t space = command.find(' ');
  const std::string_view word = command.substr(0, space);
  const std::string_view rest =
      space == std::string_view::npos ? std::string_view() : command.substr(space + 1);
  if (word == "/exit" || word == "/quit") return true;
  if (word == "/help") {
    fmt::print(stderr, "{}", kHelp);
  } else if (word == "/reset") {
    session.reset();
    fmt::print(stderr, "The conversation is forgotten.\n");
  } else if (word == "/thinking") {
    const std::optional<Thinking> thinking = thinking_of(rest);
    if (thinking) session.set_thinking(*thinking);
    fmt::print(stderr, "{}", thinking ? "" : "/thinking takes off, low, high or max.\n");
  } else {
    fmt::print(stderr, "{} is no command; /help lists them.\n", without_controls(word));
  }
  return false;
}

InputLine edited_line(LineEditor& editor) {
  InputLine line;
  switch (editor.read(kPrompt, line.text)) {
    case LineEditor::Outcome::kLine:
      line.kind = InputLine::Kind::kLine;
      break;
    case LineEditor::Outcome::kInterrupted:
      line.kind = InputLine::Kind::kInterrupted;
      break;
    case LineEditor::Outcome::kEnd:
      break;
  }
  return line;
}

// Failures are told and survived; only a lost terminal ends the chat.
core::Status chat(const RunOptions& options, Session& session) {
  Interrupts interrupts;
  AnswerPrinter printer(stdout);
  std::optional<LineEditor> editor;
  if (LineEditor::possible()) editor.emplace();
  fmt::print(stderr, "Hadal, {}. /help for help, /exit to leave.\n",
             options.model.model_dir.empty() ? "the demo model: it knows Linux commands"
                                             : options.model.model_dir);
  bool leaving = false;
  while (true) {
    const InputLine line = editor ? edited_line(*editor) : read_terminal_line(kPrompt);
    if (line.kind == InputLine::Kind::kEnd) break;
    if (line.kind == InputLine::Kind::kInterrupted) {
      interrupts.take();
      if (!editor) fmt::print(stderr, "\n");
      if (leaving) return {};
      leaving = line.text.empty();
      fmt::print(stderr, "(once more, or /exit, leaves)\n");
      continue;
    }
    leaving = false;
    if (line.text.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line.text.front() == '/') {
      if (obey(line.text, session)) return {};
      continue;
    }
    const core::Result<ShownAnswer> shown = session.ask(line.text, printer, interrupts);
    if (!shown && shown.error().code == core::Code::kIo) return shown.error();
    if (!shown) fmt::print(stderr, "{}\n", shown.error().message);
    if (shown && shown->interrupted) fmt::print(stderr, "(stopped)\n");
    if (shown && shown->completion.reason == FinishReason::kLength)
      fmt::print(stderr, "(cut at {} tokens)\n", shown->completion.n_generated_tokens);
    fmt::print(stderr, "\n");
  }
  if (!editor) fmt::print(stderr, "\n");
  return {};
}

core::Result<int> run(const RunOptions& options) {
  HADAL_TRY_VOID(check_text("system text", options.system));
  std::optional<std::string> prompt = options.prompt;
  if (!prompt && isatty(STDIN_FILENO) == 0) {
    std::ifstream in("/dev/stdin", std::ios::binary);
    prompt.emplace(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!options.raw) prompt->erase(prompt->find_last_not_of("\r\n") + 1);
  }
  // Said before a large model is loaded for nothing.
  if (prompt && prompt->find_first_not_of(" \t\r\n") == std::string::npos)
    return refused("the prompt is empty; give a question: hadal run \"What does ls do?\"");
  if (prompt) HADAL_TRY_VOID(check_text("prompt", *prompt));
  if (options.model.backend == "script")
    return refused(
        "the script backend plays what a request brings and has no model to ask; leave "
        "--backend out");
  metrics::Registry registry;
  EngineSettings settings;
  settings.model = options.model;
  settings.max_running = 1;
  std::unique_ptr<EngineStack> stack;
  {
    const WaitNote note("loading the model:");
    HADAL_TRY(stack, EngineStack::make(settings, registry));
  }
  Session session(options, *stack);
  if (!prompt) {
    HADAL_TRY_VOID(chat(options, session));
    return 0;
  }
  Interrupts interrupts;
  AnswerPrinter printer(stdout);
  HADAL_TRY(const ShownAnswer shown, session.ask(*prompt, printer, interrupts));
  if (shown.completion.reason == FinishReason::kLength && isatty(STDERR_FILENO) != 0)
    fmt::print(stderr, "(cut at {} tokens; --max-tokens sets how many)\n",
               shown.completion.n_generated_tokens);
  return shown.interrupted ? 130 : 0;  // as a shell says of a program that Ctrl-C ended
}

}  // namespace

int cmd_run(const RunOptions& options) {
  const core::Result<int> done = run(options);
  if (done) return *done;
  fmt::print(stderr, "hadal run: {}\n", done.error().message);
  return 1;
}

}  // namespace hadal::main
