#include "compute/model/forward.h"

#include <algorithm>
#include <cstring>

#include "base/core/check.h"
#include "base/core/log.h"

namespace hadal::model {
namespace {

// Puts an array of the batch where its copy will take it to `to`.
template <class T>
void stage(std::byte* host, const std::byte* step, const T* to, const std::vector<T>& from) {
  if (from.empty()) return;
  std::memcpy(host + (reinterpret_cast<const std::byte*>(to) - step), from.data(),
              from.size() * sizeof(T));
}

// Rows of mapped tables that one op reads before their pages are let go. Linux maps 64 KiB around
// each row that is touched, and several times that where the file was just written (large folios);
// Engram reads a row of each of its columns (24 at the released sizes), so that eight are 12 to 35
// MB. To let go costs a system call a table and some page faults, little beside so many rows.
constexpr int32_t kMappedRows = 8;

// One row of each sequence, all whole, each with logits: the shape of a step is its row count.
bool is_decode(const ops::StepBatch& batch) {
  const int32_t n = batch.n_rows();
  const auto all = [n](const std::vector<int32_t>& counts) {
    return std::all_of(counts.begin(), counts.end(), [n](int32_t c) { return c == n; });
  };
  return batch.n_seqs() == n && static_cast<int32_t>(batch.logit_rows.size()) == n &&
         all(batch.n_full) && all(batch.n_latent);
}

}  // namespace

void Forward::run() {
  upload();
  if (device_.reads_host_memory() || !is_decode(batch_)) return ops_of_step();
  DecodeGraph* graph = graph_of_step();
  if (graph == nullptr) return ops_of_step();
  if (graph->recording == nullptr && graph->warm && !graph->refused) {
    // Played while contexts grow: the bound of lengths is the longest one.
    act_.rows.max_end = limits_.max_context;
    auto recorded = device_.record(stream_, [this] { ops_of_step(); });
    if (recorded.has_value()) {
      graph->recording = std::move(recorded).value();
    } else {
      graph->refused = true;
      HADAL_LOG(kWarning, "model",
                "decode steps of {} rows are given op by op, which is slower: {}", batch_.n_rows(),
                recorded.error().message);
    }
  }
  graph->warm = true;
  if (graph->recording == nullptr) return ops_of_step();
  graph->recording->play(stream_);
}

DecodeGraph* Forward::graph_of_step() {
  const ops::KvView& of = workspace_.graph_kv;
  if (of.slabs != kv_.slabs || of.slots != kv_.slots) {
    workspace_.graphs.clear();
    workspace_.graph_kv = kv_;
  }
  const auto at = workspace_.graphs.find(batch_.n_rows());
  if (at != workspace_.graphs.end()) return &at->second;
  if (workspace_.graphs.size() >= kMaxDecodeGraphs) return nullptr;
  return &workspace_.graphs[batch_.n_rows()];
}

// In pieces from mapped tables, whose pages go before the next ones come: a long prompt would have
// whole tables resident. Only a device whose ops are done when they return has mapped tables.
template <class F>
void Forward::by_mapped_rows(int32_t n, const F& read) {
  if (weights_.mapped.bytes.empty()) {
    read(0, n);
    return;
  }
  for (int32_t first = 0; first < n; first += kMappedRows) {
    read(first, std::min(kMappedRows, n - first));
    weights_.mapped.let_go();
  }
}

void Forward::ops_of_step() {
  angles();
  by_mapped_rows(batch_.n_rows(), [&](int32_t first, int32_t n) {
    ops::StepRows rows = act_.rows;
    rows.ids += first;
    rows.n_rows = n;
    ops_.embed_streams({.rows = &rows,
                        .table = {weights_.embed, config_.vocab, config_.d_hidden},
                        .n_streams = config_.hc_mult,
                        .streams = act_.streams + first * config_.hc_mult * config_.d_hidden,
                        .pre = act_.pre + first * config_.hc_mult},
                       stream_);
  });
  for (int32_t l = 0; l < config_.n_layers; ++l) {
    if (batch_.n_latent[static_cast<size_t>(l)] == 0) return;  // no row goes deeper
    layer(l);
  }
  const int32_t n = batch_.n_full.back();
  if (n == 0) return;
  ops::BoundaryArgs last = boundary();
  last.n_expand = n;
  last.y = act_.y.head(n);
  ops_.boundary(last, act_.scratch, stream_);
  const auto n_logits = static_cast<int32_t>(batch_.logit_rows.size());
  ops_.final_norm({.index = act_.logit_rows,
                   .n = n_logits,
                   .n_streams = config_.hc_mult,
                   .d_hidden = config_.d_hidden,
                   .streams = act_.streams,
                   .pre = act_.pre,
                   .norm = weights_.norm,
                   .eps = config_.norm_eps,
                   .x = act_.last.head(n_logits)},
                  stream_);
}

void Forward::upload() {
  HADAL_CHECK(batch_.n_rows() <= limits_.max_rows && batch_.n_seqs() <= limits_.max_seqs &&
                  static_cast<int32_t>(batch_.logit_rows.size()) <= limits_.max_logits &&
                  batch_.max_end <= limits_.max_context,
              "a step larger than its workspace");
  const int64_t blocks = limits_.max_context / layouts_.kv.block_tokens + 1;
  HADAL_CHECK(static_cast<int64_t>(batch_.tables.size()) <= blocks * limits_.max_seqs,
              "block tables larger than the workspace");
  workspace_.turn = 1 - workspace_.turn;
  StepStaging& staging = workspace_.staging[workspace_.turn];
  staging.sent->wait();
  std::byte* host = staging.memory.data();
  stage(host, act_.step, act_.n_latent, batch_.n_latent);
  stage(host, act_.step, act_.logit_rows, batch_.logit_rows);
  stage(host, act_.step, act_.ids, batch_.ids);
  stage(host, act_.step, act_.positions, batch_.positions);
  stage(host, act_.step, act_.seq_of, batch_.seq_of);
  stage(host, act_.step, act_.row_of, batch_.row_of);
  stage(host, act_.step, act_.image, batch_.image);
  stage(host, act_.step, act_.seqs, batch_.seqs);
  stage(host, act_.step, act_.tables, batch_.tables);
  const auto* end = reinterpret_cast<const std::byte*>(act_.tables + batch_.tables.size());
  device_.copy(stream_, act_.step, host, static_cast<uint64_t>(end - act_.step));
  staging.sent->record(stream_);
  act_.rows = {.n_rows = batch_.n_rows(),
               .n_seqs = batch_.n_seqs(),
               .max_end = batch_.max_end,
               .ids = act_.ids,
               .positions = act_.positions,
               .seq_of = act_.seq_of,
               .image = act_.image,
               .row_of = act_.row_of,
               .seqs = act_.seqs,
               .tables = act_.tables};
}

void Forward::angles() {
  const auto make = [&](const std::vector<float>& freq, int32_t back, float* out) {
    ops_.rope({.positions = act_.positions,
               .n_rows = batch_.n_rows(),
               .back = back,
               .inv_freq = freq,
               .out = out},
              stream_);
  };
  make(rope_.main, 0, act_.main_rope);
  make(rope_.comp, 0, act_.comp_rope);
  for (size_t s = 0; s < layouts_.kv.sources.size(); ++s) {
    const int32_t ratio = layouts_.kv.sources[s].ratio;
    if (ratio > 1) make(rope_.comp, ratio - 1, act_.group_rope[s]);
  }
}

ops::BoundaryArgs Forward::boundary() const {
  ops::BoundaryArgs b;
  b.n_streams = config_.hc_mult;
  b.d_hidden = config_.d_hidden;
  b.streams = act_.streams;
  b.post = act_.post;
  b.comb = act_.comb;
  b.pre_in = act_.pre;
  b.pre = act_.pre;
  b.sinkhorn_iters = config_.hc_sinkhorn_iters;
  b.hc_eps = config_.hc_eps;
  b.norm_eps = config_.norm_eps;
  return b;
}

const float* Forward::angles_of(int32_t l) const {
  return config_.roles[static_cast<size_t>(l)].ratio > 0 ? act_.comp_rope : act_.main_rope;
}

int32_t Forward::source_of(int32_t l) const {
  const int32_t layer = config_.roles[static_cast<size_t>(l)].kv_source;
  for (size_t s = 0; s < layouts_.kv.sources.size(); ++s)
    if (layouts_.kv.sources[s].layer == layer) return static_cast<int32_t>(s);
  return -1;
}

// Rows [0, n_latent) enter the layer: all of them ran the one before whole.
void Forward::layer(int32_t l) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(l)];
  const int32_t n_latent = batch_.n_latent[static_cast<size_t>(l)];
  const int32_t n = batch_.n_full[static_cast<size_t>(l)];
  ops::BoundaryArgs enter = boundary();
  if (l > 0) {
    enter.n_expand = n_latent;
    enter.y = act_.y.head(n_latent);
  }
  if (config_.roles[static_cast<size_t>(l)].engram >= 0) {
    if (l > 0) ops_.boundary(enter, act_.scratch, stream_);
    engram(l, n_latent);
    enter = boundary();
  }
  enter.n_rows = n_latent;
  enter.norm = w.attn_norm;
  enter.h = act_.h.head(n_latent);
  enter.n_mix = n;
  if (n > 0) enter.site = w.attn_site.site();
  ops_.boundary(enter, act_.scratch, stream_);
  attention_inputs(l, n_latent);
  if (n == 0) return;
  attention(l, n);
  ops::BoundaryArgs middle = boundary();
  middle.n_rows = middle.n_expand = middle.n_mix = n;
  middle.y = act_.y.head(n);
  middle.norm = w.ffn_norm;
  middle.h = act_.h.head(n);
  middle.site = w.ffn_site.site();
  ops_.boundary(middle, act_.scratch, stream_);
  moe(l, n);
}

void Forward::engram(int32_t l, int32_t n) {
  const EngramWeights& w = weights_.layers[static_cast<size_t>(l)].engram;
  ops::GatherArgs gather;
  gather.kv = &kv_;
  gather.slot = &layouts_.slot;
  gather.token_map = weights_.token_map;
  gather.pad = weights_.pad;
  gather.max_ngram = config_.engram.max_ngram;
  gather.n_heads = config_.engram.n_heads;
  gather.multipliers = w.multipliers;
  gather.primes = w.primes;
  gather.offsets = w.offsets;
  gather.table = w.table;
  gather.scale = w.scale;
  gather.width = config_.engram.d_head;
  by_mapped_rows(n, [&](int32_t first, int32_t n_piece) {
    // Positions and sequences begin at the first row; the arrays by row of the step stay.
    ops::StepRows rows = act_.rows;
    rows.positions += first;
    rows.seq_of += first;
    gather.rows = &rows;
    gather.n_rows = n_piece;
    gather.e = {act_.gram.row(first), n_piece, act_.gram.n_cols, act_.gram.stride};
    ops_.engram_gather(gather, stream_);
  });
  ops_.linear({.weight = w.wkv.get(), .x = act_.gram.head(n), .y = act_.gram_kv.head(n)},
              act_.scratch, stream_);
  ops_.engram_apply({.rows = &act_.rows,
                     .n_rows = n,
                     .n_streams = config_.hc_mult,
                     .d_hidden = config_.d_hidden,
                     .kv = act_.gram_kv.head(n),
                     .q_weight = w.q_weight,
                     .k_weight = w.k_weight,
                     .eps = config_.norm_eps,
                     .streams = act_.streams},
                    stream_);
}

// What later tokens need of these rows in this layer: window latents and, in a source, entries.
void Forward::attention_inputs(int32_t l, int32_t n) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(l)];
  const device::Matrix<const uint16_t> h = act_.h.head(n);
  ops_.linear({.weight = w.q_kv.get(), .x = h, .y = act_.q_kv.head(n)}, act_.scratch, stream_);
  const int64_t bytes = layouts_.slot.window_bytes;
  ops_.latent_write({.kv = act_.q_kv.head(n).cols(config_.q_lora, config_.d_head),
                     .norm = w.kv_norm,
                     .eps = config_.norm_eps,
                     .rope = angles_of(l),
                     .d_rope = config_.d_rope,
                     .out = {act_.latents + l * limits_.max_rows * bytes, n, bytes}},
                    stream_);
  if (!config_.roles[static_cast<size_t>(l)].writes_kv) return;
  const int32_t source = source_of(l);
  const device::Matrix<float> vg = act_.groups[static_cast<size_t>(source)].head(n);
  ops_.linear({.weight = w.compress.get(), .x = h, .y_f32 = vg}, act_.scratch, stream_);
  ops_.compress({.rows = &act_.rows,
                 .n_rows = n,
                 .vg = vg,
                 .kv = &kv_,
                 .layout = &layouts_.kv,
                 .slot = &layouts_.slot,
                 .source = source,
                 .norm = w.compress_norm,
                 .wk = w.index_wk.get(),
                 .k_norm = w.index_k_norm,
                 .eps = config_.norm_eps,
                 .rope = act_.group_rope[static_cast<size_t>(source)],
                 .d_rope = config_.d_rope,
                 .d_head = config_.d_head,
                 .d_index = config_.d_index},
                act_.scratch, stream_);
}

void Forward::attention(int32_t l, int32_t n) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(l)];
  const weights::LayerRole& role = config_.roles[static_cast<size_t>(l)];
  const int32_t source = source_of(l);
  ops_.query({.q_raw = act_.q_kv.head(n).cols(0, config_.q_lora),
              .norm = w.q_norm,
              .eps = config_.norm_eps,
              .wq = w.wq_b.get(),
              .index_wq = w.index_wq.get(),
              .rope = angles_of(l),
              .d_rope = config_.d_rope,
              .d_head = config_.d_head,
              .d_index = config_.d_index,
              .q = act_.q.head(n),
              .iq = role.searches ? act_.iq.head(n) : device::Matrix<uint8_t>()},
             act_.scratch, stream_);
  if (role.searches) {
    ops_.linear(
        {.weight = w.index_weights.get(), .x = act_.h.head(n), .y_f32 = act_.head_weight.head(n)},
        act_.scratch, stream_);
    ops_.index_select({.rows = &act_.rows,
                       .n_rows = n,
                       .kv = &kv_,
                       .layout = &layouts_.kv,
                       .source = source,
                       .n_heads = config_.index_heads,
                       .d_index = config_.d_index,
                       .iq = act_.iq.head(n),
                       .hw = act_.head_weight.head(n),
                       .top_k = config_.index_top_k,
                       .list = act_.list.head(n),
                       .n_list = act_.n_list,
                       .make_pool = role.makes_pool,
                       .use_pool = role.uses_pool,
                       .pool_block = config_.pool_block,
                       .pool = act_.pool.head(n),
                       .n_pool = act_.n_pool},
                      act_.scratch, stream_);
  }
  const int64_t bytes = layouts_.slot.window_bytes;
  ops_.sparse_attend({.rows = &act_.rows,
                      .n_rows = n,
                      .upper = l > config_.split_layer,
                      .kv = &kv_,
                      .layout = &layouts_.kv,
                      .slot = &layouts_.slot,
                      .ring_layer = l,
                      .source = source,
                      .window = config_.window,
                      .latents = {act_.latents + l * limits_.max_rows * bytes,
                                  batch_.n_latent[static_cast<size_t>(l)], bytes},
                      .list = act_.list,
                      .n_list = act_.n_list,
                      .q = act_.q.head(n),
                      .sink = w.sink,
                      .rope = angles_of(l),
                      .d_rope = config_.d_rope,
                      .d_head = config_.d_head,
                      .o = act_.q.head(n)},
                     act_.scratch, stream_);
  ops_.out_proj({.o = act_.q.head(n),
                 .wo_a = w.wo_a.get(),
                 .wo_b = w.wo_b.get(),
                 .u = act_.u.head(n),
                 .y = act_.y.head(n)},
                act_.scratch, stream_);
}

void Forward::moe(int32_t l, int32_t n) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(l)];
  ops_.linear({.weight = w.gate.get(), .x = act_.h.head(n), .y_f32 = act_.route_logits.head(n)},
              act_.scratch, stream_);
  ops_.route({.rows = &act_.rows,
              .n_rows = n,
              .logits = act_.route_logits.head(n),
              .bias = w.bias,
              .bias_image = w.bias_image,
              .top_k = config_.n_experts_per_token,
              .normalise = config_.norm_topk,
              .scaling = config_.routed_scaling,
              .expert = act_.expert.head(n),
              .weight = act_.expert_weight.head(n)},
             stream_);
  ops_.moe_ffn({.experts = w.experts.get(),
                .h = act_.h.head(n),
                .expert = act_.expert.head(n),
                .weight = act_.expert_weight.head(n),
                .limit = config_.swiglu_limit,
                .y = act_.y.head(n)},
               act_.scratch, stream_);
}

}  // namespace hadal::model
