#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "compute/model/logit_rows.h"
#include "main/commands.h"
#include "main/loaded_model.h"

namespace hadal::main {
namespace {

using FilePtr = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// f32 [rows, cols], little-endian, C order, as numpy.save writes it (format 1.0, header padded to
// 64).
core::Result<FilePtr> open_npy(const std::string& path, int64_t rows, int64_t cols) {
  FilePtr file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (file == nullptr)
    return core::Error{core::Code::kIo,
                       fmt::format("--logits {}: cannot be written: {}; name a file in a folder "
                                   "that exists and can be written",
                                   path, std::strerror(errno))};
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  const auto n = static_cast<uint16_t>(header.size());
  const char magic[] = {'\x93',
                        'N',
                        'U',
                        'M',
                        'P',
                        'Y',
                        '\x01',
                        '\x00',
                        static_cast<char>(n & 0xFF),
                        static_cast<char>(n >> 8)};
  std::fwrite(magic, 1, sizeof magic, file.get());
  std::fwrite(header.data(), 1, header.size(), file.get());
  return file;
}

core::Error write_failed(const std::string& path) {
  return {core::Code::kIo, fmt::format("--logits {}: write failed: {}; what is there is incomplete",
                                       path, std::strerror(errno))};
}

// One sequence with blocks 0, 1, 2 ... and slot 0.
struct Sequence {
  std::vector<uint32_t> blocks;
  device::Buffer slabs, slots;
  ops::KvView view;
};

core::Result<Sequence> make_sequence(const LoadedModel& loaded, int32_t n_tokens) {
  Sequence s;
  const ops::KvLayout& layout = loaded.model->kv_layout();
  s.blocks.resize(static_cast<size_t>((n_tokens + layout.block_tokens - 1) / layout.block_tokens));
  std::iota(s.blocks.begin(), s.blocks.end(), 0u);
  device::Device& device = loaded.backend->device();
  const auto slab_bytes = static_cast<uint64_t>(layout.slab_bytes) * s.blocks.size();
  HADAL_TRY(s.slabs, device.allocate(slab_bytes, device::Memory::kDevice));
  const auto slot_bytes = static_cast<uint64_t>(loaded.model->slot_layout().slot_bytes);
  HADAL_TRY(s.slots, device.allocate(slot_bytes, device::Memory::kDevice));
  s.view = {.slabs = s.slabs.data(),
            .slots = s.slots.data(),
            .n_blocks = static_cast<uint32_t>(s.blocks.size()),
            .n_slots = 1};
  return s;
}

struct Candidate {
  int32_t id;
  double logprob;
};

// log sum exp in f64 over one row, then the row's best `n`: equal logits, the lower id first.
std::vector<Candidate> best_of(const float* row, int32_t vocab, int32_t n, double& log_sum) {
  const float top = *std::max_element(row, row + vocab);
  double sum = 0;
  for (int32_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]) - top);
  log_sum = top + std::log(sum);
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  n = std::min(n, vocab);
  std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](int32_t a, int32_t b) {
    return row[a] != row[b] ? row[a] > row[b] : a < b;
  });
  std::vector<Candidate> out;
  for (int32_t i = 0; i < n; ++i) {
    const int32_t id = order[static_cast<size_t>(i)];
    out.push_back({id, row[id] - log_sum});
  }
  return out;
}

// One line for the token at position p: its log-probability after everything before it.
void print_row(int32_t p, int32_t id, const float* before, int32_t vocab, int32_t top_n) {
  if (before == nullptr) {
    fmt::print("{{\"position\":{},\"id\":{},\"logprob\":null,\"top\":[]}}\n", p, id);
    return;
  }
  double log_sum = 0;
  const std::vector<Candidate> best = best_of(before, vocab, top_n, log_sum);
  std::string top;
  for (const Candidate& c : best)
    top +=
        fmt::format("{}{{\"id\":{},\"logprob\":{:.6f}}}", top.empty() ? "" : ",", c.id, c.logprob);
  fmt::print("{{\"position\":{},\"id\":{},\"logprob\":{:.6f},\"top\":[{}]}}\n", p, id,
             before[id] - log_sum, top);
}

core::Status check_ids(const std::vector<int32_t>& ids, const LoadedModel& loaded,
                       const std::string& path) {
  const auto refuse = [&](std::string why) {
    return core::Error{core::Code::kInvalidRequest, fmt::format("{}: {}", path, why)};
  };
  if (ids.empty()) return refuse("has no token; at least one is needed");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= loaded.config.vocab) {
      return refuse(fmt::format(
          "element {} is {}, the vocabulary has {} ids; were these ids made for another model?", i,
          ids[i], loaded.config.vocab));
    }
  }
  if (static_cast<int64_t>(ids.size()) > loaded.config.max_positions) {
    return refuse(fmt::format(
        "{} tokens, the model has {} positions (max_position_embeddings); shorten the list",
        ids.size(), loaded.config.max_positions));
  }
  return {};
}

core::Status score(const ScoreOptions& options) {
  HADAL_TRY(const std::vector<int32_t> ids, read_id_list(options.tokens));
  const auto n = static_cast<int32_t>(ids.size());
  const int32_t chunk =
      std::min(n, options.model.prefill_chunk > 0 ? options.model.prefill_chunk : 512);
  const model::StepLimits limits = {
      .max_rows = chunk, .max_seqs = 1, .max_logits = chunk, .max_context = n};
  const auto n_blocks =
      static_cast<uint64_t>((n + options.model.block_tokens - 1) / options.model.block_tokens);
  HADAL_TRY(LoadedModel loaded,
            load_model(options.model, {.limits = limits, .n_blocks = n_blocks, .n_slots = 1}));
  HADAL_TRY_VOID(check_ids(ids, loaded, options.tokens));
  const auto vocab = static_cast<int32_t>(loaded.config.vocab);
  HADAL_TRY(model::WorkspacePtr workspace, loaded.model->make_workspace(limits));
  HADAL_TRY(Sequence sequence, make_sequence(loaded, n));
  HADAL_TRY(std::unique_ptr<device::Stream> stream, loaded.backend->device().make_stream());
  if (options.plan) {
    const model::WorkspacePlan plan = loaded.model->plan_workspace(limits);
    fmt::print(stderr,
               "plan: weights {} B, blocks {} B, slot {} B, activations {} B, latents {} B, "
               "scratch {} B\n",
               loaded.model->weight_bytes(), sequence.slabs.size(), sequence.slots.size(),
               plan.rows, plan.latents, plan.scratch);
  }
  FilePtr file(nullptr, std::fclose);
  if (!options.logits.empty()) {
    HADAL_TRY(file, open_npy(options.logits, n, vocab));
  }
  // Every position wants logits, so every row runs every layer whatever --replay says.
  loaded.model->reset_slot(sequence.view, 0, *stream);
  constexpr int32_t kLogitRows = 64;
  HADAL_TRY(model::LogitRows logits,
            model::LogitRows::make(*loaded.model, loaded.backend->device(), kLogitRows));
  print_row(0, ids[0], nullptr, vocab, options.top_n);
  ops::StepBatch batch;
  const bool progress = isatty(STDERR_FILENO) != 0 && n > 2 * chunk;
  for (int32_t at = 0; at < n; at += chunk) {
    const int32_t rows = std::min(chunk, n - at);
    const ops::SeqChunk piece = {
        .position = at,
        .ids = std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)),
        .blocks = sequence.blocks,
        .n_logits = rows};
    build_step_batch(loaded.model->batch_shape(), std::span(&piece, 1), batch);
    loaded.model->forward(batch, sequence.view, *workspace, *stream);
    for (int32_t first = 0; first < rows; first += kLogitRows) {
      const int32_t m = std::min(kLogitRows, rows - first);
      logits.fetch(*loaded.model, *workspace, first, m, *stream);
      HADAL_TRY_VOID(stream->synchronize());
      for (int32_t i = 0; i < m; ++i) {
        const float* row = logits.row(i).data();
        const int32_t p = at + first + i;
        if (p + 1 < n) print_row(p + 1, ids[static_cast<size_t>(p) + 1], row, vocab, options.top_n);
      }
      if (file != nullptr &&
          std::fwrite(logits.row(0).data(), sizeof(float) * static_cast<size_t>(vocab),
                      static_cast<size_t>(m), file.get()) != static_cast<size_t>(m)) {
        return write_failed(options.logits);
      }
    }
    const int32_t accepted[] = {rows};
    loaded.model->commit(batch, accepted, sequence.view, *workspace, *stream);
    HADAL_TRY_VOID(stream->synchronize());
    if (progress) fmt::print(stderr, "\rscored {} of {}", at + rows, n);
  }
  if (progress) fmt::print(stderr, "\n");
  if (file != nullptr && std::fclose(file.release()) != 0) return write_failed(options.logits);
  return {};
}

}  // namespace

int cmd_score(const ScoreOptions& options) {
  const core::Status done = score(options);
  if (done) return 0;
  fmt::print(stderr, "hadal score: {}\n", done.error().message);
  return 1;
}

}  // namespace hadal::main
