#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "compute/backends/cpu/cpu_level.h"
#include "main/commands.h"
#include "main/engine_stack.h"
#include "main/loaded_model.h"
#include "main/stored_answers.h"
#include "main/way_runner.h"

// The same prompts in every way that this machine can run them: each way must give the same ids,
// and the same logits to the last bit. Where answers of the model are stored, they must be those:
// a build or a machine that is wrong in the same way everywhere is found, too.
namespace hadal::main {
namespace {

// On an accelerator, where kernels are chosen by the number of rows: so many of each prompt.
constexpr int32_t kCopies = 16;

// An accelerator adds in another order, which may tip a choice between two ids that are as close as
// this (nats; bench/cuda/answers.py). What follows is another text.
constexpr double kTippedMargin = 0.8;

// Lengths around the borders of the window and of groups; ids that repeat, so that n-grams do too.
std::vector<std::vector<int32_t>> make_prompts(const weights::ModelConfig& config) {
  std::vector<std::vector<int32_t>> out;
  for (const int32_t n : {1, 6, config.window + 3, 2 * config.window + 33}) {
    std::vector<int32_t> ids;
    uint64_t state = static_cast<uint64_t>(n) * 0x9E3779B97F4A7C15u;
    const auto span = static_cast<uint64_t>(std::min<int64_t>(config.vocab, 4096));
    while (static_cast<int32_t>(ids.size()) < n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto id = static_cast<int32_t>((state >> 33) % span);
      if (id != config.image_token) ids.push_back(id);
    }
    out.push_back(std::move(ids));
  }
  return out;
}

// What is stored of this model, if anything is.
struct Expected {
  std::string path;  // "": nothing
  StoredAnswers stored;
};

core::Result<Expected> read_expected(const SelfcheckOptions& options) {
  Expected out;
  if (!options.write.empty()) return out;
  out.path = options.expect;
  if (out.path.empty()) {
    const std::string& given = options.model.model_dir;
    const std::string file = (given.empty() ? default_model_dir() : given) + "/selfcheck.json";
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return out;
    out.path = file;
  }
  HADAL_TRY(out.stored, read_stored_answers(out.path));
  return out;
}

core::Error write_needs_host() {
  return {core::Code::kInvalidRequest,
          "--write stores what the CPU gives, which is the reference: give --backend cpu", "write"};
}

core::Error too_long(const SelfcheckOptions& options, const Expected& expected) {
  return {core::Code::kContextTooLong,
          expected.path.empty()
              ? fmt::format("--max-tokens {}: with the prompt that is more than the model has "
                            "positions; lower it",
                            options.n_new)
              : fmt::format("{}: an answer and its prompt are longer than the model has positions",
                            expected.path),
          expected.path.empty() ? "max-tokens" : "expect"};
}

StoredAnswers sizes_of(const LoadedModel& loaded) {
  return {.vocab = loaded.config.vocab,
          .n_layers = loaded.config.n_layers,
          .weight_bytes = static_cast<int64_t>(loaded.checkpoint->total_bytes()),
          .answers = {}};
}

// How many answers are not the stored ones; says so.
int compare(const std::vector<Answer>& got, const Expected& expected, bool on_host) {
  int bad = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const StoredAnswer& stored = expected.stored.answers[i];
    const auto departure = first_departure(stored, got[i].ids);
    if (!departure) continue;
    const bool tipped = !on_host && departure->margin < kTippedMargin;
    bad += tipped ? 0 : 1;
    fmt::print(
        "{}  answer {} of {}, after a prompt of {} ids: id {} is {}, stored is {}, which was "
        "{:.2f} nats ahead{}\n",
        tipped ? "near " : "OTHER", i + 1, got.size(), stored.prompt.size(), departure->at + 1,
        departure->got, departure->want, departure->margin,
        tipped ? ": close enough for sums in another order" : "");
  }
  if (bad == 0) {
    fmt::print("{} answers: as stored in {}\n", got.size(), expected.path);
  } else {
    fmt::print(
        "{} of {} answers are not those stored in {}: this build or this machine computes "
        "wrongly, or the weights are not those that the file was written with\n",
        bad, got.size(), expected.path);
  }
  return bad;
}

core::Result<int> selfcheck(const SelfcheckOptions& options) {
  const Way ways[] = {
      {.name = "whole prompts, every layer on every row", .all_layers = true},
      {.name = "whole prompts, tails"},
      {.name = "chunks of 1", .chunk = 1},
      {.name = "chunks of 2", .chunk = 2},
      {.name = "chunks of 3", .chunk = 3},
      {.name = "chunks of 7", .chunk = 7},
      {.name = "chunks of 64, all prompts together", .chunk = 64, .together = true},
      {.name = "all prompts together, moved by snapshot", .together = true, .snapshot_at = 3},
      {.name = "each prompt 16 times together, chunks of 7",
       .chunk = 7,
       .together = true,
       .copies = kCopies},
  };
  HADAL_TRY(Expected expected, read_expected(options));
  std::vector<std::vector<int32_t>> prompts;
  prompts.reserve(expected.stored.answers.size());
  for (const StoredAnswer& answer : expected.stored.answers) prompts.push_back(answer.prompt);
  const bool is_stored = !prompts.empty();
  const int32_t n_new =
      is_stored ? static_cast<int32_t>(expected.stored.answers[0].ids.size()) : options.n_new;
  StoredAnswers made;
  bool on_host = true;
  std::vector<Answer> want;
  int bad = 0, n = 0;
  std::vector<int> threads = {1};
  if (options.model.threads != 1) threads.push_back(options.model.threads);
  std::vector<std::string> levels;
  for (const cpu::CpuLevel level : cpu::supported_levels()) levels.emplace_back(level_name(level));
  if (!options.model.cpu_level.empty()) levels = {options.model.cpu_level};
  if (options.model.backend.starts_with("cuda")) {
    levels = {""};
    threads = {options.model.threads};
  }
  for (const std::string& level : levels) {
    for (const int count : threads) {
      ModelFlags flags = options.model;
      flags.cpu_level = level;
      flags.threads = count;
      HADAL_TRY(LoadedModel loaded, load_model(flags));
      const std::string device = loaded.backend->device().description();
      on_host = loaded.backend->device().reads_host_memory();
      if (!on_host && !options.write.empty()) return write_needs_host();
      made = sizes_of(loaded);
      if (is_stored) HADAL_TRY_VOID(check_same_model(expected.stored, made, expected.path));
      if (prompts.empty()) prompts = make_prompts(loaded.config);
      size_t longest = 0;
      for (const std::vector<int32_t>& prompt : prompts) longest = std::max(longest, prompt.size());
      if (static_cast<int64_t>(longest) + n_new > loaded.config.max_positions)
        return too_long(options, expected);
      HADAL_TRY(auto checker, WayRunner::make(std::move(loaded), static_cast<int32_t>(longest),
                                              static_cast<int32_t>(prompts.size()), n_new,
                                              on_host ? 1 : kCopies));
      for (const Way& way : ways) {
        if (on_host && way.copies > 1) continue;
        HADAL_TRY(const std::vector<Answer> got, checker->run(prompts, way));
        if (want.empty()) want = got;
        bool same = true;
        for (size_t i = 0; i < got.size(); ++i) same = same && got[i] == want[i % want.size()];
        bad += same ? 0 : 1;
        ++n;
        fmt::print("{}  {}: {}\n", same ? "same" : "OTHER", device, way.name);
        std::fflush(stdout);
      }
    }
  }
  fmt::print("{} ways, {} prompts, {} ids each: {}\n", n, want.size(), n_new,
             bad == 0 ? "all the same bits" : fmt::format("{} differ", bad));
  if (is_stored) bad += compare(want, expected, on_host);
  if (options.write.empty() || bad > 0) return bad;
  for (size_t i = 0; i < want.size(); ++i)
    made.answers.push_back({prompts[i], want[i].ids, want[i].margins});
  HADAL_TRY_VOID(write_stored_answers(made, options.write));
  fmt::print("written to {}\n", options.write);
  return 0;
}

}  // namespace

int cmd_selfcheck(const SelfcheckOptions& options) {
  const core::Result<int> done = selfcheck(options);
  if (done) return *done == 0 ? 0 : 1;
  fmt::print(stderr, "hadal selfcheck: {}\n", done.error().message);
  return 1;
}

}  // namespace hadal::main
