#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/core/result.h"
#include "compute/device/device.h"
#include "compute/device/view.h"
#include "compute/ops/kv_layout.h"

// The op set of DeepSeek-V4.1: what a backend must do, at the grain that an accelerator fuses.
// Section numbers are those of docs/model.md. An op takes views, scalars, a workspace and a stream;
// it never allocates, waits, logs or decides what to batch. All pointers are device memory. Shapes
// in comments: T rows, H hidden, C streams (hc_mult), D head width, N heads, R rotary width. bf16
// values are uint16_t bits; every sum is f32 in an order that depends on nothing but the row
// itself.
namespace hadal::ops {

using device::Matrix;
using device::Stream;

enum class WeightFormat : uint8_t {
  kFp8Tile,  // E4M3 [n, k], E8M0 [ceil(n/32), ceil(k/32)]
  kFp4Row,   // E2M1 pairs [n, k/2], E8M0 [n, k/32]
  kBf16,     // [n, k]
  kF32,      // [n, k]
};

// A matrix as the checkpoint holds it (host memory).
struct WeightSource {
  WeightFormat format = WeightFormat::kBf16;
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs
  const void* weight = nullptr;
  const uint8_t* scale = nullptr;
  // The weight lies in a read-only file mapping: a backend may give pages back to the
  // system once it has repacked them (they can be read again).
  bool mapped = false;
};

// A matrix in the order that its backend likes, in device memory.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual int64_t n() const = 0;
  virtual int64_t k() const = 0;
  virtual uint64_t bytes() const = 0;
};

// The experts of one layer, the shared one last.
class Experts {
 public:
  virtual ~Experts() = default;
  virtual uint64_t bytes() const = 0;
};

// w1 = gate [d_inter, H], w3 = up [d_inter, H], w2 = down [H, d_inter].
struct ExpertSource {
  WeightSource w1, w3, w2;
};

// The step's row arrays on the device (see StepBatch for meaning).
struct StepRows {
  int32_t n_rows = 0;
  int32_t n_seqs = 0;
  int32_t max_end = 0;
  const int32_t* ids = nullptr;           // [T]
  const int32_t* positions = nullptr;     // [T]
  const int32_t* seq_of = nullptr;        // [T]
  const uint8_t* image = nullptr;         // [T]
  const int32_t* row_of = nullptr;        // [T], sequence-major
  const struct BatchSeq* seqs = nullptr;  // [n_seqs]
  const uint32_t* tables = nullptr;
};

// Cosines and sines of the rows' angles: [T][R/2][2] f32.
struct RopeArgs {
  const int32_t* positions = nullptr;  // [T]
  int32_t n_rows = 0;
  int32_t back = 0;                      // angles of max(position - back, 0)
  std::span<const float> inv_freq = {};  // [R/2], host memory, copied at the call
  float* out = nullptr;                  // angle = f32(f32(p) * inv_freq), then exact cos and sin
};

// 3.2: X[t][c] = embed[id] for every stream, pre[t] = (1, 0, ...). Rows with an override take it.
struct EmbedArgs {
  const StepRows* rows = nullptr;
  Matrix<const uint16_t> table = {};           // [vocab, H]
  const uint16_t* const* overrides = nullptr;  // null, or [T] pointers to bf16 [H], null = none
  int32_t n_streams = 0;
  uint16_t* streams = nullptr;  // [T, C, H]
  float* pre = nullptr;         // [T, C]
};

// Parameters of one hyper-connection site (3.3).
struct HcSite {
  const Linear* fn = nullptr;    // f32 [2C + C*C, C*H]
  const float* base = nullptr;   // [2C + C*C]
  const float* scale = nullptr;  // [3]
};

// 3.3, everything between two sub-layers, each part only if its first pointer is set:
//   expand    X = bf16(post * y + sum_j comb[j] X[j])         rows [0, n_expand)
//   tap       tap[t] = bf16(mean_j X[j])                      rows [0, n_rows)
//   collapse  h = RMS(bf16(sum_j pre_in[j] X[j]); norm)       rows [0, n_rows)
//   mix       pre, post, comb of the coming site from X       rows [0, n_mix)
// `post` and `comb` are read by expand before mix writes them. pre_in and pre may be one array.
struct BoundaryArgs {
  int32_t n_streams = 0;
  int64_t d_hidden = 0;
  int32_t n_rows = 0;
  int32_t n_expand = 0;
  int32_t n_mix = 0;
  uint16_t* streams = nullptr;     // [T, C, H]
  Matrix<const uint16_t> y = {};   // [T, H]
  float* post = nullptr;           // [T, C]
  float* comb = nullptr;           // [T, C, C], [source][target]
  Matrix<uint16_t> tap = {};       // [T, H]
  const float* pre_in = nullptr;   // [T, C]
  const uint16_t* norm = nullptr;  // [H]
  Matrix<uint16_t> h = {};         // [T, H]
  HcSite site = {};
  float* pre = nullptr;  // [T, C]
  int32_t sinkhorn_iters = 0;
  float hc_eps = 0;
  float norm_eps = 0;
};

// y = x W^T. Weights of kFp8Tile and kFp4Row quantise x first (AQ8, 3.0) unless `plain_input`.
struct LinearArgs {
  const Linear* weight = nullptr;
  Matrix<const uint16_t> x = {};
  bool plain_input = false;
  Matrix<uint16_t> y = {};   // bf16 result, or
  Matrix<float> y_f32 = {};  // f32 result
};

// 3.4: record = packed FQ8(ROPE(RMS(kv; norm))).
struct LatentArgs {
  Matrix<const uint16_t> kv = {};  // [T, D]
  const uint16_t* norm = nullptr;
  float eps = 0;
  const float* rope = nullptr;  // [T][R/2][2]
  int32_t d_rope = 0;
  Matrix<uint8_t> out = {};  // [T, window_record_bytes]
};

// 3.5 and the keys of 3.6: entries and index keys of the groups that end in these rows, written to
// the slabs. vg [T, D] at ratio 1 (value), [T, 2 D] else (value, gate).
struct CompressArgs {
  const StepRows* rows = nullptr;
  int32_t n_rows = 0;
  Matrix<const float> vg = {};
  const KvView* kv = nullptr;
  const KvLayout* layout = nullptr;
  const SlotLayout* slot = nullptr;
  int32_t source = 0;                // index into layout->sources
  const uint16_t* norm = nullptr;    // [D]
  const Linear* wk = nullptr;        // [d_index, D]
  const uint16_t* k_norm = nullptr;  // [d_index]
  float eps = 0;
  const float* rope = nullptr;  // angles of position - (ratio - 1)
  int32_t d_rope = 0;
  int32_t d_head = 0;
  int32_t d_index = 0;
};

// 3.4 and the query side of 3.6: qr = RMS(q_raw); q = ROPE(L8(qr, wq_b)); if index_wq:
// iq = packed FQ4e8(ROPE(L8(qr, index_wq))).
struct QueryArgs {
  Matrix<const uint16_t> q_raw = {};  // [T, q_lora]
  const uint16_t* norm = nullptr;
  float eps = 0;
  const Linear* wq = nullptr;        // [N * D, q_lora]
  const Linear* index_wq = nullptr;  // [heads * d_index, q_lora] or null
  const float* rope = nullptr;
  int32_t d_rope = 0;
  int32_t d_head = 0;
  int32_t d_index = 0;
  Matrix<uint16_t> q = {};  // [T, N * D]
  Matrix<uint8_t> iq = {};  // [T, heads * key_record_bytes(d_index)]
};

// 3.6: the entries each row attends to. list[t] ascending, n_list[t] of them. Equal scores: the
// lower entry wins. A score that is not a number counts as -inf.
struct IndexArgs {
  const StepRows* rows = nullptr;
  int32_t n_rows = 0;
  const KvView* kv = nullptr;
  const KvLayout* layout = nullptr;
  int32_t source = 0;
  int32_t n_heads = 0;
  int32_t d_index = 0;
  Matrix<const uint8_t> iq = {};  // [T, heads * record]
  Matrix<const float> hw = {};    // [T, heads], rounded to bf16 by the op
  int32_t top_k = 0;
  Matrix<int32_t> list = {};  // [T, top_k]
  int32_t* n_list = nullptr;
  // Candidate pool: written when `make_pool`, obeyed when `use_pool`. pool[t] = kept blocks,
  // ascending, n_pool[t] of them; n_pool -1: every visible entry.
  bool make_pool = false;
  bool use_pool = false;
  int32_t pool_block = 0;
  Matrix<int32_t> pool = {};  // [T, pool_blocks]
  int32_t* n_pool = nullptr;
};

// 3.7: window latents plus listed entries, sink in the denominator, output rotated back.
struct AttendArgs {
  const StepRows* rows = nullptr;
  int32_t n_rows = 0;
  bool upper = false;  // above the split: windows end at the sequence's upper_floor
  const KvView* kv = nullptr;
  const KvLayout* layout = nullptr;
  const SlotLayout* slot = nullptr;
  int32_t ring_layer = 0;
  int32_t source = -1;  // -1: window only
  int32_t window = 0;
  Matrix<const uint8_t> latents = {};  // this layer's records of this step's rows
  Matrix<const int32_t> list = {};
  const int32_t* n_list = nullptr;
  Matrix<const uint16_t> q = {};  // [T, N * D]
  const float* sink = nullptr;    // [N]
  const float* rope = nullptr;
  int32_t d_rope = 0;
  int32_t d_head = 0;
  Matrix<uint16_t> o = {};  // [T, N * D], may be q
};

// 3.8: y = L8(concat_g bf16(o_g Wa_g^T), wo_b); Wa multiplies the unquantised o.
struct OutArgs {
  Matrix<const uint16_t> o = {};
  const Linear* wo_a = nullptr;  // grouped: [o_lora, N D / groups] each
  const Linear* wo_b = nullptr;
  Matrix<uint16_t> u = {};  // scratch [T, groups * o_lora]
  Matrix<uint16_t> y = {};  // [T, H]
};

// 3.10: experts and weights of each row, ascending by expert.
struct RouteArgs {
  const StepRows* rows = nullptr;
  int32_t n_rows = 0;
  Matrix<const float> logits = {};    // [T, experts]
  const float* bias = nullptr;        // [experts]
  const float* bias_image = nullptr;  // for rows with the image flag; null: bias
  int32_t top_k = 0;
  bool normalise = true;  // norm_topk_prob, and never for top_k 1
  float scaling = 1;
  Matrix<int32_t> expert = {};  // [T, top_k]
  Matrix<float> weight = {};    // [T, top_k]
};

// 3.10: y = bf16(sum of expert outputs in ascending order + shared expert).
struct MoeArgs {
  const Experts* experts = nullptr;
  Matrix<const uint16_t> h = {};
  Matrix<const int32_t> expert = {};
  Matrix<const float> weight = {};
  float limit = 0;  // swiglu_limit, 0: no clamp
  Matrix<uint16_t> y = {};
};

// 3.9: the table rows of each row's n-grams, dequantised: e [T, columns * width] bf16. Reads the
// slots' histories for positions before the step.
struct GatherArgs {
  const StepRows* rows = nullptr;
  int32_t n_rows = 0;
  const KvView* kv = nullptr;
  const SlotLayout* slot = nullptr;
  const int32_t* token_map = nullptr;  // [vocab] -> compressed id
  int32_t pad = 0;                     // compressed id of the pad token
  int32_t max_ngram = 0;
  int32_t n_heads = 0;
  const int64_t* multipliers = nullptr;  // [max_ngram]
  const int64_t* primes = nullptr;       // [(max_ngram - 1) * n_heads]
  const int64_t* offsets = nullptr;      // the same
  const uint8_t* table = nullptr;        // E4M3 [rows, width]
  const uint8_t* scale = nullptr;        // E8M0 [rows, width/32]
  int32_t width = 0;
  Matrix<uint16_t> e = {};
};

// 3.9.5: gate and add to every stream; rows with the image flag stay as they are.
struct EngramArgs {
  const StepRows* rows = nullptr;
  int32_t n_rows = 0;
  int32_t n_streams = 0;
  int64_t d_hidden = 0;
  Matrix<const uint16_t> kv = {};      // [T, (C + 1) H]
  const uint16_t* q_weight = nullptr;  // [C, H]
  const uint16_t* k_weight = nullptr;  // [C, H]
  float eps = 0;
  uint16_t* streams = nullptr;
};

// 3.11: rows of `index` only: x = RMS(COLLAPSE(X, pre)).
struct FinalArgs {
  const int32_t* index = nullptr;  // [n]
  int32_t n = 0;
  int32_t n_streams = 0;
  int64_t d_hidden = 0;
  const uint16_t* streams = nullptr;
  const float* pre = nullptr;
  const uint16_t* norm = nullptr;
  float eps = 0;
  Matrix<uint16_t> x = {};  // [n, H]
};

// After acceptance: the first n_accepted[s] rows of each sequence become its state. Writes rings
// (the rows of each layer that exist: n_latent), open groups, history and the committed length.
struct CommitArgs {
  const StepRows* rows = nullptr;
  const int32_t* n_accepted = nullptr;  // [n_seqs]
  const KvView* kv = nullptr;
  const KvLayout* layout = nullptr;
  const SlotLayout* slot = nullptr;
  const int32_t* n_latent = nullptr;  // [n_layers] on the device
  const uint8_t* latents = nullptr;   // [n_layers][row_capacity][window_bytes]
  int64_t row_capacity = 0;
  const float* const* groups = nullptr;  // per source: [T, 2 D] of this step, null at ratio 1
  int32_t d_head = 0;
  const int32_t* token_map = nullptr;  // null without Engram
};

// A device's implementation of the set. Const after construction; one stream at a time per
// workspace.
class Ops {
 public:
  virtual ~Ops() = default;
  virtual std::string_view name() const = 0;

  // Load time. Matrices of one stack share format and k and become one linear of the summed n.
  virtual core::Result<std::unique_ptr<Linear>> make_linear(
      std::span<const WeightSource> stack) = 0;
  // Block diagonal: equal parts of the rows of `source`, part g for the g-th k inputs.
  virtual core::Result<std::unique_ptr<Linear>> make_grouped(const WeightSource& source,
                                                             int32_t n_groups) = 0;
  // hc_*_fn, f32 [n, n_streams * d_hidden], in the order that boundary() likes.
  virtual core::Result<std::unique_ptr<Linear>> make_mix(const WeightSource& source,
                                                         int32_t n_streams) = 0;
  virtual core::Result<std::unique_ptr<Experts>> make_experts(std::span<const ExpertSource> routed,
                                                              const ExpertSource& shared) = 0;

  // Scratch that the ops need for steps up to these sizes, bound by bind_workspace.
  struct Limits {
    int32_t max_rows = 0;
    int32_t max_end = 0;   // longest context
    int32_t top_k = 0;     // experts per row
    int64_t widest_k = 0;  // largest k of any linear
    int64_t d_inter = 0;
    int64_t d_hidden = 0;
    int32_t d_head = 0;
    int32_t d_index = 0;
    int32_t n_groups = 0;  // of the output projection
  };
  virtual uint64_t workspace_bytes(const Limits& limits) const = 0;
  struct Scratch {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
  };

  virtual void rope(const RopeArgs& args, Stream& stream) = 0;
  virtual void embed_streams(const EmbedArgs& args, Stream& stream) = 0;
  virtual void boundary(const BoundaryArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void linear(const LinearArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void latent_write(const LatentArgs& args, Stream& stream) = 0;
  virtual void compress(const CompressArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void query(const QueryArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void index_select(const IndexArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void sparse_attend(const AttendArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void out_proj(const OutArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void route(const RouteArgs& args, Stream& stream) = 0;
  virtual void moe_ffn(const MoeArgs& args, Scratch scratch, Stream& stream) = 0;
  virtual void engram_gather(const GatherArgs& args, Stream& stream) = 0;
  virtual void engram_apply(const EngramArgs& args, Stream& stream) = 0;
  virtual void final_norm(const FinalArgs& args, Stream& stream) = 0;
  virtual void commit(const CommitArgs& args, Stream& stream) = 0;
};

}  // namespace hadal::ops
