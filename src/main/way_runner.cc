#include "main/way_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/core/check.h"

namespace hadal::main {
namespace {

double margin_of(std::span<const float> row, int32_t best) {
  float next = -INFINITY;
  for (size_t i = 0; i < row.size(); ++i) {
    if (static_cast<int32_t>(i) != best) next = std::max(next, row[i]);
  }
  const double margin = static_cast<double>(row[static_cast<size_t>(best)]) - next;
  return std::isfinite(margin) ? margin : 0;
}

}  // namespace

struct WayRunner::Running {
  std::vector<int32_t> ids;
  std::vector<uint32_t> blocks;
  uint32_t slot = 0;
  int32_t n_prompt = 0;
  int32_t done = 0;  // committed
  Answer answer;
};

core::Result<std::unique_ptr<WayRunner>> WayRunner::make(LoadedModel loaded, int32_t max_prompt,
                                                         int32_t n_prompts, int32_t n_new,
                                                         int32_t copies) {
  auto c = std::make_unique<WayRunner>();
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

core::Result<std::vector<Answer>> WayRunner::run(const std::vector<std::vector<int32_t>>& prompts,
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
  out.reserve(all.size());
  for (Running& r : all) out.push_back(std::move(r.answer));
  return out;
}

bool WayRunner::finished(const Running& r) const {
  return static_cast<int32_t>(r.answer.ids.size()) >= n_new_;
}

core::Status WayRunner::step(const std::vector<Running*>& group, const Way& way) {
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
    const auto best = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    r.answer.logits.assign(row.begin(), row.end());
    r.answer.ids.push_back(best);
    r.answer.margins.push_back(margin_of(row, best));
    r.ids.push_back(best);
    if (static_cast<int32_t>(r.answer.ids.size()) == way.snapshot_at) move_slot(r);
  }
  return {};
}

void WayRunner::move_slot(Running& r) {
  std::vector<std::byte> bytes(static_cast<size_t>(loaded_.model->slot_layout().slot_bytes));
  loaded_.model->save_slot(kv_, r.slot, bytes.data(), *stream_);
  r.slot += kv_.n_slots / 2;
  loaded_.model->load_slot(kv_, r.slot, bytes.data(), *stream_);
  HADAL_CHECK(stream_->synchronize().has_value(), "copies of a slot");
}

}  // namespace hadal::main
