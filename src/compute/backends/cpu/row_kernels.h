#pragma once

#include <cstdint>

// The arithmetic of the non-linear ops, compiled once per instruction set from
// row_kernels_body.inc. Every level gives the same bits: sums run over 16 lanes and then a fixed
// tree, nothing is fused, and exponentials are evaluated in f64 and rounded once.
namespace hadal::cpu {

// Scratch of one thread for attend: all rows 64-byte aligned.
struct AttendScratch {
  float* q;      // [n_heads][d]
  float* keys;   // [64][d]
  float* score;  // [n_heads][64]
  float* out;    // [n_heads][d]
  float* max;    // [n_heads]
  float* den;    // [n_heads]
};

// One row's key list in blocks of 64 places. A record is a window latent or a compressed entry.
struct AttendKey {
  const uint8_t* record;
  bool window;
};

struct AttendJob {
  const uint16_t* q;  // bf16 [n_heads][d]
  const float* sink;  // [n_heads]
  const float* rope;  // [d_rope / 2][2]
  uint16_t* out;      // bf16 [n_heads][d]
  const AttendKey* keys;
  const int32_t* block_ends;  // keys of block b: [block_ends[b-1], block_ends[b])
  int32_t n_blocks;
  int32_t n_heads;
  int32_t d;
};

// Scores of 16 entries for several query rows. `codes` holds e2m1 values times two, entry-minor.
struct ScoreTile {
  const float* codes;   // [d_index][16]
  const float* scales;  // [d_index / 32][16]
};
struct ScoreQuery {
  const float* codes;        // [n_heads][d_index], e2m1 values times two
  const float* scales;       // [n_heads][d_index / 32], a quarter of the group's scale
  const float* head_weight;  // [n_heads]
};

struct RowKernels {
  // h = bf16(w * (x / sqrt(mean(x^2) + eps)))
  void (*rms)(const uint16_t* x, const uint16_t* w, int64_t n, float eps, uint16_t* h);
  // x' in place: bf16(post[k] * y + sum_j comb[j][k] x[j]) for channels [begin, end)
  void (*expand)(uint16_t* x, const uint16_t* y, const float* post, const float* comb,
                 int32_t n_streams, int64_t d, int64_t begin, int64_t end);
  // out = bf16(sum_j pre[j] x[j])
  void (*collapse)(const uint16_t* x, const float* pre, int32_t n_streams, int64_t d,
                   uint16_t* out);
  void (*mean_streams)(const uint16_t* x, int32_t n_streams, int64_t d, uint16_t* out);
  float (*sum_squares)(const uint16_t* x, int64_t n);
  // out = bf16(weight * (silu(min(g, limit)) * clamp(u, limit))); limit 0: no clamp
  void (*swiglu)(const uint16_t* g, const uint16_t* u, float weight, float limit, int64_t n,
                 uint16_t* out);
  // AQ8 and back: values that an FP8 or FP4 linear takes. n a multiple of 32.
  void (*snap8)(const uint16_t* x, int64_t n, uint16_t* out);
  void (*pack_window)(const uint16_t* x, int32_t d, uint8_t* record);
  void (*pack_entry)(const uint16_t* x, int32_t d, uint8_t* record);
  void (*pack_key)(const uint16_t* x, int32_t d, uint8_t* codes, uint8_t* scales);
  void (*widen)(const uint16_t* x, int64_t n, float* out);
  void (*narrow)(const float* x, int64_t n, uint16_t* out);
  // acc += y, y bf16
  void (*accumulate)(const uint16_t* y, int64_t n, float* acc);
  // The three sums of Engram's gate: sum h qw kw K, sum h^2, sum K^2.
  void (*engram_sums)(const uint16_t* h, const uint16_t* qw, const uint16_t* kw, const uint16_t* k,
                      int64_t n, float out[3]);
  // h = bf16(h + gate * v)
  void (*add_scaled)(const uint16_t* v, float gate, int64_t n, uint16_t* h);
  // u = bf16(sum over members of softmax(gate) * value, per channel); rows are `value, gate` pairs
  void (*pool_group)(const float* const* members, int32_t n_members, int64_t d, uint16_t* u);
  void (*attend)(const AttendJob& job, const AttendScratch& scratch);
  // out[q][0..16) = score of each entry
  void (*score)(const ScoreTile& tile, const ScoreQuery* queries, int32_t n_queries,
                int32_t n_heads, int32_t d_index, float constant, float* const* out);
  double (*exp)(double x);
};

extern const RowKernels kRowKernelsBase;
#if defined(__x86_64__)
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;
#endif

}  // namespace hadal::cpu
