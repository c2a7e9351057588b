#include "model/model_rig.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/core/check.h"
#include "compute/backends/cpu/cpu_backend.h"

namespace hadal::test {
namespace {

constexpr uint32_t kBlocks = 4096;
constexpr uint32_t kSlots = 64;

template <class T>
T must(core::Result<T> result) {
  HADAL_CHECK(result.has_value(), result.has_value() ? "" : result.error().message);
  return std::move(result).value();
}

main::LoadedModel load(const RigOptions& options) {
  const std::string folder = std::string(HADAL_MODEL_CASES) + "/" + options.name;
  main::LoadedModel out;
  out.config = must(weights::load_model_config(folder + "/config.json"));
  out.backend = must(cpu::make_cpu_backend({.n_threads = options.threads, .pin = false}));
  out.checkpoint = must(weights::Checkpoint::open(folder));
  model::ModelOptions m;
  m.block_tokens = options.block_tokens;
  m.ring_tokens = options.ring_tokens;
  m.token_map = must(main::load_token_map(folder, out.config));
  out.model = must(model::Model::load(*out.checkpoint, out.config, *out.backend, std::move(m)));
  return out;
}

}  // namespace

Rig::Rig(const RigOptions& options) : loaded_(load(options)) {
  workspace_ = must(loaded_.model->make_workspace({.max_rows = options.max_rows,
                                                   .max_seqs = 32,
                                                   .max_logits = options.max_rows,
                                                   .max_context = 4096}));
  device::Device& device = loaded_.backend->device();
  stream_ = must(device.make_stream());
  logits_ = must(model::LogitRows::make(model(), device, options.max_rows));
  slabs_ = must(device.allocate(kBlocks * static_cast<uint64_t>(model().kv_layout().slab_bytes),
                                device::Memory::kDevice));
  slots_ = must(device.allocate(kSlots * static_cast<uint64_t>(model().slot_layout().slot_bytes),
                                device::Memory::kDevice));
  // Stale bytes everywhere: what a step reads it must have written.
  std::memset(slabs_.data(), 0x7F, slabs_.size());
  std::memset(slots_.data(), 0x7F, slots_.size());
  kv_ = {slabs_.data(), slots_.data(), kBlocks, kSlots};
}

Seq Rig::start(int32_t n_tokens) {
  Seq seq;
  seq.slot = next_slot_++;
  HADAL_CHECK(seq.slot < kSlots, "too many sequences for the rig");
  const int32_t per_block = model().kv_layout().block_tokens;
  for (int32_t i = 0; i < (n_tokens + per_block - 1) / per_block; ++i)
    seq.blocks.push_back((next_block_++ * 37) % kBlocks);  // scattered
  model().reset_slot(kv_, seq.slot, *stream_);
  return seq;
}

Logits Rig::step(const std::vector<Piece>& pieces) {
  std::vector<ops::SeqChunk> chunks;
  std::vector<int32_t> accepted;
  for (const Piece& p : pieces) {
    ops::SeqChunk c;
    c.slot = p.seq->slot;
    c.position = p.seq->length;
    c.ids = p.ids;
    c.image = p.image;
    c.blocks = p.seq->blocks;
    c.n_logits = p.n_logits;
    c.depth_from = p.depth_from;
    c.replay = p.replay;
    c.window_floor = p.window_floor;
    c.write_from = p.write_from;
    chunks.push_back(c);
    accepted.push_back(p.accept < 0 ? static_cast<int32_t>(p.ids.size()) : p.accept);
  }
  build_step_batch(model().batch_shape(), chunks, batch_);
  model().forward(batch_, kv_, *workspace_, *stream_);
  const auto n = static_cast<int32_t>(batch_.logit_rows.size());
  if (n > 0) logits_.fetch(model(), *workspace_, 0, n, *stream_);
  model().commit(batch_, accepted, kv_, *workspace_, *stream_);
  HADAL_CHECK(stream_->synchronize().has_value(), "stream");
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i].seq->length += accepted[i];
  Logits out;
  for (int32_t i = 0; i < n; ++i) out.emplace_back(logits_.row(i).begin(), logits_.row(i).end());
  return out;
}

std::vector<float> Rig::prefill(Seq& seq, const std::vector<int32_t>& ids, int32_t chunk,
                                ops::Replay replay, bool whole) {
  const auto n = static_cast<int32_t>(ids.size());
  Logits last;
  for (int32_t at = 0; at < n; at += chunk) {
    const int32_t end = std::min(n, at + chunk);
    Piece p;
    p.seq = &seq;
    p.ids.assign(ids.begin() + at, ids.begin() + end);
    p.n_logits = end == n ? 1 : 0;
    p.depth_from = whole ? 0 : n - 1;
    p.replay = replay;
    last = step({p});
  }
  return last.at(0);
}

Logits Rig::decode(Seq& seq, const std::vector<int32_t>& ids) {
  Logits out;
  for (const int32_t id : ids) {
    Piece p;
    p.seq = &seq;
    p.ids = {id};
    out.push_back(step({p}).at(0));
  }
  return out;
}

std::vector<std::byte> Rig::slot_bytes(const Seq& seq) {
  std::vector<std::byte> out(static_cast<size_t>(model().slot_layout().slot_bytes));
  model().save_slot(kv_, seq.slot, out.data(), *stream_);
  return out;
}

std::vector<std::byte> Rig::block_bytes(const Seq& seq, int32_t n_tokens) {
  std::vector<std::byte> out;
  const ops::KvLayout& layout = model().kv_layout();
  for (int32_t b = 0; b < n_tokens / layout.block_tokens; ++b) {
    const std::byte* slab =
        kv_.slabs + static_cast<int64_t>(seq.blocks[static_cast<size_t>(b)]) * layout.slab_bytes;
    out.insert(out.end(), slab, slab + layout.slab_bytes);
  }
  return out;
}

std::vector<int32_t> some_ids(const weights::ModelConfig& config, int32_t n, uint32_t seed) {
  std::vector<int32_t> ids;
  uint64_t state = seed * 7919u + 13u;
  while (static_cast<int32_t>(ids.size()) < n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto id = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(config.vocab));
    if (id != config.image_token) ids.push_back(id);
  }
  return ids;
}

}  // namespace hadal::test
