#include "compute/model/workspace.h"

#include <algorithm>

namespace hadal::model {
namespace {

// Hands out aligned pieces of one buffer; with a null base it only adds up.
class Pieces {
 public:
  explicit Pieces(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t n) {
    const uint64_t at = used_;
    used_ += (static_cast<uint64_t>(n) * sizeof(T) + 255) / 256 * 256;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  template <class T>
  device::Matrix<T> matrix(int64_t rows, int64_t cols) {
    return device::Matrix<T>(take<T>(rows * cols), rows, cols);
  }
  uint64_t used() const { return used_; }

 private:
  std::byte* base_;
  uint64_t used_ = 0;
};

void lay_out_step(Pieces& p, const weights::ModelConfig& s, const StepLimits& limits,
                  int32_t block_tokens, Activations& a) {
  const int64_t t = limits.max_rows;
  a.n_accepted = p.take<int32_t>(limits.max_seqs);
  const uint64_t begin = p.used();
  a.n_latent = p.take<int32_t>(s.n_layers);
  a.step = reinterpret_cast<std::byte*>(a.n_latent);
  a.logit_rows = p.take<int32_t>(limits.max_logits);
  a.ids = p.take<int32_t>(t);
  a.positions = p.take<int32_t>(t);
  a.seq_of = p.take<int32_t>(t);
  a.row_of = p.take<int32_t>(t);
  a.image = p.take<uint8_t>(t);
  a.seqs = p.take<ops::BatchSeq>(limits.max_seqs);
  const int64_t blocks = limits.max_context / block_tokens + 1;
  a.tables = p.take<uint32_t>(blocks * limits.max_seqs);
  a.step_bytes = p.used() - begin;
}

void lay_out_rows(Pieces& p, const weights::ModelConfig& s, const StepLimits& limits,
                  Activations& a) {
  const int64_t t = limits.max_rows;
  a.main_rope = p.take<float>(t * s.d_rope);
  a.comp_rope = p.take<float>(t * s.d_rope);
  a.streams = p.take<uint16_t>(t * s.hc_mult * s.d_hidden);
  a.pre = p.take<float>(t * s.hc_mult);
  a.post = p.take<float>(t * s.hc_mult);
  a.comb = p.take<float>(t * s.hc_mult * s.hc_mult);
  a.h = p.matrix<uint16_t>(t, s.d_hidden);
  a.y = p.matrix<uint16_t>(t, s.d_hidden);
  a.q_kv = p.matrix<uint16_t>(t, s.q_lora + s.d_head);
  a.q = p.matrix<uint16_t>(t, static_cast<int64_t>(s.n_heads) * s.d_head);
  a.u = p.matrix<uint16_t>(t, static_cast<int64_t>(s.o_groups) * s.o_lora);
  a.route_logits = p.matrix<float>(t, s.n_experts);
  a.expert = p.matrix<int32_t>(t, s.n_experts_per_token);
  a.expert_weight = p.matrix<float>(t, s.n_experts_per_token);
  if (!s.kv_sources.empty()) {
    a.iq = p.matrix<uint8_t>(t, s.index_heads * ops::key_record_bytes(s.d_index));
    a.head_weight = p.matrix<float>(t, s.index_heads);
    a.list = p.matrix<int32_t>(t, s.index_top_k);
    a.n_list = p.take<int32_t>(t);
    a.pool = p.matrix<int32_t>(t, s.pool_blocks);
    a.n_pool = p.take<int32_t>(t);
  }
  if (!s.engram.layers.empty()) {
    a.gram = p.matrix<uint16_t>(t, static_cast<int64_t>(s.engram.n_columns()) * s.engram.d_head);
    a.gram_kv = p.matrix<uint16_t>(t, (s.hc_mult + 1) * s.d_hidden);
  }
  a.last = p.matrix<uint16_t>(limits.max_logits, s.d_hidden);
}

}  // namespace

WorkspacePlan lay_out(const weights::ModelConfig& config, const ops::KvLayouts& layouts,
                      const StepLimits& limits, uint64_t scratch_bytes, std::byte* base,
                      Activations& act) {
  Pieces p(base);
  WorkspacePlan plan;
  lay_out_step(p, config, limits, layouts.kv.block_tokens, act);
  lay_out_rows(p, config, limits, act);
  act.groups.clear();
  act.group_rope.clear();
  for (const ops::KvSource& source : layouts.kv.sources)
    act.group_rope.push_back(source.ratio > 1 ? p.take<float>(limits.max_rows * config.d_rope)
                                              : act.comp_rope);
  plan.rows = p.used();
  for (const ops::KvSource& source : layouts.kv.sources) {
    const int64_t width = source.ratio > 1 ? 2 * config.d_head : config.d_head;
    act.groups.push_back(p.matrix<float>(limits.max_rows, width));
  }
  act.group_rows = p.take<const float*>(static_cast<int64_t>(layouts.kv.sources.size()));
  act.latents = p.take<uint8_t>(config.n_layers * limits.max_rows * layouts.slot.window_bytes);
  plan.latents = p.used() - plan.rows;
  act.scratch = {p.take<std::byte>(static_cast<int64_t>(scratch_bytes)), scratch_bytes};
  plan.scratch = p.used() - plan.rows - plan.latents;
  return plan;
}

void WorkspaceDeleter::operator()(Workspace* workspace) const {
  delete workspace;
}

}  // namespace hadal::model
