#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "compute/backends/cpu/cpu_level.h"
#include "compute/model/logit_rows.h"
#include "main/commands.h"
#include "main/engine_stack.h"
#include "main/loaded_model.h"
#include "main/stored_answers.h"

// The same prompts in every way that this machine can run them: each way must give the same ids,
// and the same logits to the last bit. Where answers of the model are stored, they must be those:
// a build or a machine that is wrong in the same way everywhere is found, too.
namespace hadal::main {
namespace {

struct Way {
  std::string name;
  int32_t chunk = 0;      // 0: whole prompts
  bool together = false;  // all prompts in the same steps
  bool all_layers = false;
  int32_t snapshot_at = 0;  // after so many generated ids the slot moves to another one
  int32_t copies = 1;       // of every prompt, each a sequence of its own
};

// On an accelerator, where kernels are chosen by the number of rows: so many of each prompt.
constexpr int32_t kCopies = 16;

// An accelerator adds in another order, which may tip a choice between two ids that are as close as
// this (nats; bench/cuda/answers.py). What follows is another text.
constexpr double kTippedMargin = 0.8;

struct Answer {
  std::vector<int32_t> ids;
  std::vector<double> margins;  // of each id above the next likeliest
  std::vector<float> logits;    // of the last row, as witness
  bool operator==(const Answer&) const = default;
};

struct Running {
  std::vector<int32_t> ids;
  std::vector<uint32_t> blocks;
  uint32_t slot = 0;
  int32_t n_prompt = 0;
  int32_t done = 0;  // committed
  Answer answer;
};

double margin_of(std::span<const float> row, int32_t best) {
  float next = -INFINITY;
  for (size_t i = 0; i < row.size(); ++i) {
    if (static_cast<int32_t>(i) != best) next = std::max(next, row[i]);
  }
  const double margin = static_cast<double>(row[static_cast<size_t>(best)]) - next;
  return std::isfinite(margin) ? margin : 0;
}

class Checker {
 public:
  static core::Result<std::unique_ptr<Checker>> make(LoadedModel loaded, int32_t max_prompt,
                                                     int32_t n_prompts, int32_t n_new,
                                                     int32_t copies) {
    auto c = std::make_unique<Checker>();
    c->loaded_ = std::move(loaded);
    c->n_new_ = n_new;
    const model::Model& m = *c->loaded_.model;
    const int32_t context = max_prompt + n_new;
    const int32_t n_seqs = n_prompts * copies;
    HADAL_TRY(c->workspace_, m.make_workspace({.max_rows = n_prompts * max_prompt,
                                               .max_seqs = n_seqs,
                                               .max_logits = n_seqs,
                                               .max_context = context}));
    device::Device& device = c->loaded_.backend->device();
    HADAL_TRY(c->stream_, device.make_stream());
    HADAL_TRY(c->logits_, model::LogitRows::make(m, device, n_seqs));
    c->blocks_each_ = static_cast<uint32_t>(context / m.kv_layout().block_tokens + 1);
    c->kv_.n_blocks = c->blocks_each_ * static_cast<uint32_t>(n_seqs);
    c->kv_.n_slots = 2 * static_cast<uint32_t>(n_seqs);
    HADAL_TRY(c->slabs_,
              device.allocate(c->kv_.n_blocks * static_cast<uint64_t>(m.kv_layout().slab_bytes),
                              device::Memory::kDevice));
    HADAL_TRY(c->slots_,
              device.allocate(c->kv_.n_slots * static_cast<uint64_t>(m.slot_layout().slot_bytes),
                              device::Memory::kDevice));
    c->kv_.slabs = c->slabs_.data();
    c->kv_.slots = c->slots_.data();
    return c;
  }

  core::Result<std::vector<Answer>> run(const std::vector<std::vector<int32_t>>& prompts,
                                        const Way& way) {
    std::vector<Running> all(prompts.size() * static_cast<size_t>(way.copies));
    for (uint32_t i = 0; i < all.size(); ++i) {
      all[i].ids = prompts[i % prompts.size()];
      all[i].n_prompt = static_cast<int32_t>(all[i].ids.size());
      all[i].slot = i;
      all[i].blocks.resize(blocks_each_);
      std::iota(all[i].blocks.begin(), all[i].blocks.end(), i * blocks_each_);
      loaded_.model->reset_slot(kv_, i, *stream_);
    }
    std::vector<Running*> group;
    for (Running& r : all) {
      group.push_back(&r);
      if (way.together && &r != &all.back()) continue;
      while (true) {
        std::erase_if(group, [&](Running* x) { return finished(*x); });
        if (group.empty()) break;
        HADAL_TRY_VOID(step(group, way));
      }
    }
    std::vector<Answer> out;
    for (Running& r : all) out.push_back(std::move(r.answer));
    return out;
  }

 private:
  bool finished(const Running& r) const {
    return static_cast<int32_t>(r.answer.ids.size()) >= n_new_;
  }

  core::Status step(const std::vector<Running*>& group, const Way& way) {
    std::vector<ops::SeqChunk> chunks;
    std::vector<int32_t> accepted;
    for (Running* r : group) {
      const int32_t left = static_cast<int32_t>(r->ids.size()) - r->done;
      const int32_t n = way.chunk > 0 ? std::min(left, way.chunk) : left;
      chunks.push_back(
          {.slot = r->slot,
           .position = r->done,
           .ids = std::span(r->ids).subspan(static_cast<size_t>(r->done), static_cast<size_t>(n)),
           .blocks = r->blocks,
           .n_logits = n == left ? 1 : 0,
           .depth_from = way.all_layers ? 0 : r->n_prompt - 1});
      accepted.push_back(n);
    }
    ops::build_step_batch(loaded_.model->batch_shape(), chunks, batch_);
    loaded_.model->forward(batch_, kv_, *workspace_, *stream_);
    const auto n = static_cast<int32_t>(batch_.logit_rows.size());
    if (n > 0) logits_.fetch(*loaded_.model, *workspace_, 0, n, *stream_);
    loaded_.model->commit(batch_, accepted, kv_, *workspace_, *stream_);
    HADAL_TRY_VOID(stream_->synchronize());
    int32_t n_read = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      Running& r = *group[i];
      r.done += accepted[i];
      if (chunks[i].n_logits == 0) continue;
      const std::span<float> row = logits_.row(n_read++);
      const auto best =
          static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      r.answer.logits.assign(row.begin(), row.end());
      r.answer.ids.push_back(best);
      r.answer.margins.push_back(margin_of(row, best));
      r.ids.push_back(best);
      if (static_cast<int32_t>(r.answer.ids.size()) == way.snapshot_at) move_slot(r);
    }
    return {};
  }

  void move_slot(Running& r) {
    std::vector<std::byte> bytes(static_cast<size_t>(loaded_.model->slot_layout().slot_bytes));
    loaded_.model->save_slot(kv_, r.slot, bytes.data(), *stream_);
    r.slot += kv_.n_slots / 2;
    loaded_.model->load_slot(kv_, r.slot, bytes.data(), *stream_);
    HADAL_CHECK(stream_->synchronize().has_value(), "copies of a slot");
  }

  LoadedModel loaded_;
  model::WorkspacePtr workspace_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer slabs_, slots_;
  ops::KvView kv_;
  ops::StepBatch batch_;
  model::LogitRows logits_;
  uint32_t blocks_each_ = 0;
  int32_t n_new_ = 0;
};

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
      HADAL_TRY(auto checker,
                Checker::make(std::move(loaded), static_cast<int32_t>(longest),
                              static_cast<int32_t>(prompts.size()), n_new, on_host ? 1 : kCopies));
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
