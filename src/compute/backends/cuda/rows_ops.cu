#include <algorithm>
#include <bit>
#include <cmath>

#include "base/core/check.h"
#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/channels.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/route_kernel.cuh"
#include "compute/backends/cuda/rows_ops.h"
#include "compute/ops/step_batch.h"

namespace hadal::cuda {
namespace {

constexpr int kMaxPairs = 128;  // rotary pairs of a head
constexpr int kMaxStreams = 8;  // hc_mult

struct Frequencies {
  float value[kMaxPairs];
};

// One thread an angle. The product is rounded to f32, cosine and sine are those of f64.
__global__ void rope_kernel(const int32_t* positions, int32_t n_rows, int32_t back, int32_t half,
                            Frequencies inv_freq, float2* out, bool overlap) {
  follow_previous(overlap);
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n_rows * half) return;
  const auto p = static_cast<float>(max(positions[i / half] - back, 0));
  const double angle = __fmul_rn(p, inv_freq.value[i % half]);
  out[i] = make_float2(static_cast<float>(cos(angle)), static_cast<float>(sin(angle)));
}

// One block a row. `V` is the widest word that divides and aligns a row.
template <class V>
__global__ void embed_kernel(const int32_t* ids, const uint16_t* table, int64_t table_stride,
                             const uint16_t* const* overrides, int32_t n_streams, int32_t d,
                             uint16_t* streams, float* pre, bool overlap) {
  follow_previous(overlap);
  const int64_t t = blockIdx.x;
  const uint16_t* from = overrides != nullptr ? overrides[t] : nullptr;
  if (from == nullptr) from = table + ids[t] * table_stride;
  uint16_t* to = streams + t * n_streams * d;
  constexpr int kWidth = sizeof(V) / 2;
  for (int i = threadIdx.x * kWidth; i < d; i += blockDim.x * kWidth) {
    const V v = *reinterpret_cast<const V*>(from + i);
    for (int32_t c = 0; c < n_streams; ++c) *reinterpret_cast<V*>(to + c * d + i) = v;
  }
  if (threadIdx.x < n_streams) pre[t * n_streams + threadIdx.x] = threadIdx.x == 0 ? 1.0f : 0.0f;
}

struct GatherParams {
  const int32_t* ids;
  const int32_t* positions;
  const int32_t* seq_of;
  const int32_t* row_of;
  const uint8_t* image;
  const ops::BatchSeq* seqs;
  const std::byte* slots;
  int64_t slot_bytes;
  int32_t n_history;
  const int32_t* token_map;
  int32_t pad, max_ngram, n_heads, width;
  const int64_t* multipliers;
  const int64_t* primes;
  const int64_t* offsets;
  const uint8_t* table;
  const uint8_t* scale;
  uint16_t* e;
  int64_t e_stride;
  bool overlap;
};

constexpr int32_t kDead = -1;

// Compressed id of the token at `position`; kDead for image tokens and places before the start.
__device__ int32_t history_at(const GatherParams& p, const ops::BatchSeq& seq, int32_t position) {
  if (position < 0) return kDead;
  if (position < seq.first_position) {
    const auto* header = reinterpret_cast<const int32_t*>(p.slots + seq.slot * p.slot_bytes);
    const int32_t back = seq.first_position - position;
    return back <= p.n_history ? header[1 + p.n_history - back] : kDead;
  }
  const int32_t row = p.row_of[seq.first_index + position - seq.first_position];
  return p.image[row] != 0 ? kDead : p.token_map[p.ids[row]];
}

// Exact: at most four significant bits.
__device__ __forceinline__ uint16_t table_value(uint32_t code, float scale) {
  const float v = __uint_as_float((code & 0x80u) << 24 | (code & 0x7Fu) << 20);
  return static_cast<uint16_t>(__float_as_uint(__fmul_rn(__fmul_rn(v, 0x1p120f), scale)) >> 16);
}

// One warp a column (n-gram length and head) of a row: hash, then its table row. The table may lie
// in host memory: few wide reads. `V` is the widest word that aligns its rows.
template <class V>
__global__ void gather_kernel(GatherParams p) {
  follow_previous(p.overlap);
  const int64_t t = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int column = static_cast<int>(blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32);
  if (column >= (p.max_ngram - 1) * p.n_heads) return;
  const ops::BatchSeq seq = p.seqs[p.seq_of[t]];
  uint64_t z = 0;
  bool blocked = false;
  for (int32_t i = 0; i <= column / p.n_heads + 1; ++i) {
    const int32_t id = history_at(p, seq, p.positions[t] - i);
    blocked = blocked || id == kDead;
    z ^= static_cast<uint64_t>(blocked ? p.pad : id) * static_cast<uint64_t>(p.multipliers[i]);
  }
  const int64_t row = static_cast<int64_t>(z) % p.primes[column] + p.offsets[column];
  const uint8_t* codes = p.table + row * p.width;
  const uint8_t* scales = p.scale + row * (p.width / 32);
  uint16_t* e = p.e + t * p.e_stride + static_cast<int64_t>(column) * p.width;
  constexpr int kWidth = sizeof(V);
  for (int c = lane * kWidth; c < p.width; c += 32 * kWidth) {
    union {
      V word;
      uint8_t byte[kWidth];
    } u;
    u.word = *reinterpret_cast<const V*>(codes + c);
    const float scale = e8m0_to_float(scales[c / 32]);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) e[c + i] = table_value(u.byte[i], scale);
  }
}

constexpr int kApplyThreads = 256;
constexpr int kApplyTile = 1024;

// One block a stream of a row. Terms by all threads, a tile at a time; half a warp each adds up the
// three sums in the reference's order.
__global__ void apply_kernel(const uint8_t* image, int32_t n_streams, int32_t d, const uint16_t* kv,
                             int64_t kv_stride, const uint16_t* q_weight, const uint16_t* k_weight,
                             float eps, float constant, uint16_t* streams, bool overlap) {
  __shared__ float term[3][kApplyTile];
  __shared__ float sums[3];
  follow_previous(overlap);
  const int64_t t = blockIdx.x / n_streams;
  const int j = static_cast<int>(blockIdx.x % n_streams);
  if (image[t] != 0) return;
  uint16_t* h = streams + static_cast<int64_t>(blockIdx.x) * d;
  const uint16_t* k = kv + t * kv_stride + static_cast<int64_t>(j) * d;
  const uint16_t* v = kv + t * kv_stride + static_cast<int64_t>(n_streams) * d;
  const uint16_t* qw = q_weight + static_cast<int64_t>(j) * d;
  const uint16_t* kw = k_weight + static_cast<int64_t>(j) * d;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  float s = 0;
  for (int base = 0; base < d; base += kApplyTile) {
    const int n = min(kApplyTile, d - base);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kApplyThreads) {
      const float a = bf16_to_float(h[base + i]), b = bf16_to_float(k[base + i]);
      const float w = __fmul_rn(bf16_to_float(qw[base + i]), bf16_to_float(kw[base + i]));
      term[0][i] = __fmul_rn(__fmul_rn(a, w), b);
      term[1][i] = __fmul_rn(a, a);
      term[2][i] = __fmul_rn(b, b);
    }
    __syncthreads();
    if (warp < 3 && lane < 16) {
#pragma unroll 8
      for (int i = lane; i < n; i += 16) s = __fadd_rn(s, term[warp][i]);
    }
    __syncthreads();
  }
  if (warp < 3) {
    for (int step = 8; step > 0; step /= 2)
      s = __fadd_rn(s, __shfl_down_sync(0xFFFFFFFFu, s, step));
    if (lane == 0) sums[warp] = s;
  }
  __syncthreads();
  const auto width = static_cast<float>(d);
  const float rh = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sums[1], width), eps)));
  const float rk = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sums[2], width), eps)));
  const float dot = __fmul_rn(__fmul_rn(__fmul_rn(sums[0], rh), rk), constant);
  const float x = copysignf(__fsqrt_rn(fmaxf(fabsf(dot), 1e-6f)), dot);
  const float gate = __fdiv_rn(1.0f, __fadd_rn(1.0f, static_cast<float>(exp_f64(-x))));
  for (int i = static_cast<int>(threadIdx.x); i < d; i += kApplyThreads)
    h[i] = bf16_from_float(__fadd_rn(bf16_to_float(h[i]), __fmul_rn(bf16_to_float(v[i]), gate)));
}

// A row of any shape, a block each: collapse into shared memory, the first warp adds the squares
// up.
__global__ void final_norm_plain_kernel(const int32_t* index, int32_t n_streams, int32_t d,
                                        const uint16_t* streams, const float* pre,
                                        const uint16_t* norm, float eps, uint16_t* x,
                                        int64_t x_stride, bool overlap) {
  extern __shared__ uint16_t row[];
  __shared__ float scale;
  expect_weights(overlap, norm, d * 2);
  follow_previous(overlap);
  const int64_t t = index[blockIdx.x];
  const uint16_t* from = streams + t * n_streams * d;
  const float* p = pre + t * n_streams;
  for (int i = static_cast<int>(threadIdx.x); i < d; i += static_cast<int>(blockDim.x)) {
    float s = __fmul_rn(bf16_to_float(from[i]), p[0]);
    for (int32_t j = 1; j < n_streams; ++j)
      s = __fadd_rn(s, __fmul_rn(bf16_to_float(from[static_cast<int64_t>(j) * d + i]), p[j]));
    row[i] = bf16_from_float(s);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const float sum = warp_sum32(d, [&](int i) {
      const float v = bf16_to_float(row[i]);
      return __fmul_rn(v, v);
    });
    if (threadIdx.x == 0) scale = rms_factor(sum, d, eps);
  }
  __syncthreads();
  uint16_t* out = x + static_cast<int64_t>(blockIdx.x) * x_stride;
  for (int i = static_cast<int>(threadIdx.x); i < d; i += static_cast<int>(blockDim.x))
    out[i] =
        bf16_from_float(__fmul_rn(bf16_to_float(norm[i]), __fmul_rn(bf16_to_float(row[i]), scale)));
}

// Four streams of aligned rows: a block a row, a thread a unit of it.
constexpr int kFinalThreads = 640;
__global__ void __launch_bounds__(kFinalThreads, 3)
    final_norm_kernel(const int32_t* index, int32_t d, const uint16_t* streams, const float* pre,
                      const uint16_t* norm, float eps, uint16_t* x, int64_t x_stride,
                      bool overlap) {
  extern __shared__ __align__(16) float squares[];  // [d]
  __shared__ float scale;
  expect_weights(overlap, norm, d * 2);
  follow_previous(overlap);
  const int at = static_cast<int>(threadIdx.x) * kUnitChannels;
  const int64_t t = index[blockIdx.x];
  uint4 h = {};
  if (at < d) {
    const uint16_t* from = streams + t * 4 * d + at;
    uint4 in[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) in[j] = *reinterpret_cast<const uint4*>(from + j * d);
    float factor[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) factor[j] = pre[t * 4 + j];
    h = collapse_unit(in, factor);
    store_squares(squares + at, h);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const float sum = sum_terms(squares, d);
    if (threadIdx.x == 0) scale = rms_factor(sum, d, eps);
  }
  __syncthreads();
  if (at >= d) return;
  const uint4 weight = *reinterpret_cast<const uint4*>(norm + at);
  store_word(x + static_cast<int64_t>(blockIdx.x) * x_stride + at, norm_unit(h, weight, scale));
}

bool aligned(const void* p, int64_t row_bytes, uintptr_t to) {
  return reinterpret_cast<uintptr_t>(p) % to == 0 && row_bytes % static_cast<int64_t>(to) == 0;
}

unsigned int blocks_for(int64_t n, int64_t per_block) {
  return static_cast<unsigned int>((n + per_block - 1) / per_block);
}

}  // namespace

void launch_rope(const ops::RopeArgs& args, const Gpu& gpu, cudaStream_t stream) {
  const auto half = static_cast<int32_t>(args.inv_freq.size());
  if (args.n_rows == 0 || half == 0) return;
  HADAL_CHECK(half <= kMaxPairs, "a rotary width above 256");
  Frequencies inv_freq = {};
  std::copy(args.inv_freq.begin(), args.inv_freq.end(), inv_freq.value);
  launch_following(gpu.overlap, 1, rope_kernel,
                   dim3(blocks_for(static_cast<int64_t>(args.n_rows) * half, 128)), dim3(128), 0,
                   stream, args.positions, args.n_rows, args.back, half, inv_freq,
                   reinterpret_cast<float2*>(args.out), gpu.overlap);
}

void launch_embed_streams(const ops::EmbedArgs& args, const Gpu& gpu, cudaStream_t stream) {
  const int32_t n = args.rows->n_rows;
  if (n == 0) return;
  HADAL_CHECK(args.n_streams <= kMaxStreams, "hc_mult above 8");
  const auto d = static_cast<int32_t>(args.table.n_cols);
  // Overrides are bf16 rows of unknown alignment.
  const bool wide = args.overrides == nullptr &&
                    aligned(args.table.data, args.table.stride * 2, 16) &&
                    aligned(args.streams, int64_t{d} * 2, 16);
  const auto kernel = wide ? embed_kernel<uint4> : embed_kernel<uint16_t>;
  launch_following(gpu.overlap, 1, kernel, dim3(static_cast<unsigned int>(n)), dim3(256), 0, stream,
                   args.rows->ids, args.table.data, args.table.stride, args.overrides,
                   args.n_streams, d, args.streams, args.pre, gpu.overlap);
}

void launch_route(const ops::RouteArgs& args, const Gpu& gpu, cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const auto n_experts = static_cast<int32_t>(args.logits.n_cols);
  HADAL_CHECK(args.top_k >= 1 && args.top_k <= kMaxChosen && args.top_k <= n_experts &&
                  n_experts <= kMaxItems * kRouteThreads,
              "experts per row");
  // A thread an expert where multiprocessors are idle; else three, which share the choice.
  constexpr int kManyItems = 3;
  const bool few = args.n_rows <= 4 * gpu.sm_count && n_experts <= kRouteThreads;
  const int items = few ? 1 : n_experts <= kManyItems * kRouteThreads ? kManyItems : kMaxItems;
  const auto kernel = items == 1            ? route_kernel<1>
                      : items == kManyItems ? route_kernel<kManyItems>
                                            : route_kernel<kMaxItems>;
  const int threads = ((n_experts + items - 1) / items + 31) / 32 * 32;
  const auto top_k = static_cast<uint32_t>(args.top_k);
  const auto shared = static_cast<size_t>(threads / 32) * top_k * (8 + 4);
  const RouteJob job = {.logits = args.logits.data,
                        .stride = args.logits.stride,
                        .n_experts = n_experts,
                        .bias_text = args.bias,
                        .bias_image = args.bias_image,
                        .image = args.rows->image,
                        .top_k = args.top_k,
                        .lane_bits = std::bit_width(32u / top_k) - 1,
                        .normalise = args.normalise && args.top_k > 1,
                        .scaling = args.scaling,
                        .expert = args.expert.data,
                        .expert_stride = args.expert.stride,
                        .weight = args.weight.data,
                        .weight_stride = args.weight.stride,
                        .overlap = gpu.overlap};
  launch_following(gpu.overlap, 1, kernel, dim3(static_cast<unsigned int>(args.n_rows)),
                   dim3(static_cast<unsigned int>(threads)), shared, stream, job);
}

void launch_engram_gather(const ops::GatherArgs& args, const Gpu& gpu, cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const GatherParams p = {.ids = args.rows->ids,
                          .positions = args.rows->positions,
                          .seq_of = args.rows->seq_of,
                          .row_of = args.rows->row_of,
                          .image = args.rows->image,
                          .seqs = args.rows->seqs,
                          .slots = args.kv->slots,
                          .slot_bytes = args.slot->slot_bytes,
                          .n_history = args.slot->n_history,
                          .token_map = args.token_map,
                          .pad = args.pad,
                          .max_ngram = args.max_ngram,
                          .n_heads = args.n_heads,
                          .width = args.width,
                          .multipliers = args.multipliers,
                          .primes = args.primes,
                          .offsets = args.offsets,
                          .table = args.table,
                          .scale = args.scale,
                          .e = args.e.data,
                          .e_stride = args.e.stride,
                          .overlap = gpu.overlap};
  constexpr int kWarps = 4;
  const dim3 grid(static_cast<unsigned int>(args.n_rows),
                  blocks_for(int64_t{args.max_ngram - 1} * args.n_heads, kWarps));
  const auto kernel = aligned(args.table, args.width, 8)   ? gather_kernel<uint2>
                      : aligned(args.table, args.width, 4) ? gather_kernel<uint32_t>
                                                           : gather_kernel<uint8_t>;
  launch_following(gpu.overlap, 1, kernel, grid, dim3(kWarps * 32), 0, stream, p);
}

void launch_engram_apply(const ops::EngramArgs& args, const Gpu& gpu, cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const auto d = static_cast<int32_t>(args.d_hidden);
  const auto constant = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.d_hidden)));
  launch_following(
      gpu.overlap, 1, apply_kernel, dim3(static_cast<unsigned int>(args.n_rows * args.n_streams)),
      dim3(kApplyThreads), 0, stream, args.rows->image, args.n_streams, d, args.kv.data,
      args.kv.stride, args.q_weight, args.k_weight, args.eps, constant, args.streams, gpu.overlap);
}

void launch_final_norm(const ops::FinalArgs& args, const Gpu& gpu, cudaStream_t stream) {
  if (args.n == 0) return;
  const auto d = static_cast<int32_t>(args.d_hidden);
  const dim3 grid(static_cast<unsigned int>(args.n));
  if (args.n_streams == 4 && d % 32 == 0 && d <= kFinalThreads * kUnitChannels &&
      units_aligned(args.streams, d) && units_aligned(args.norm, d) &&
      units_aligned(args.x.data, args.x.stride)) {
    const int threads = (d / kUnitChannels + 31) / 32 * 32;
    launch_following(gpu.overlap, 1, final_norm_kernel, grid,
                     dim3(static_cast<unsigned int>(threads)), static_cast<size_t>(d) * 4, stream,
                     args.index, d, args.streams, args.pre, args.norm, args.eps, args.x.data,
                     args.x.stride, gpu.overlap);
    return;
  }
  const auto bytes = static_cast<size_t>(d) * sizeof(uint16_t);
  HADAL_CHECK(bytes <= gpu.smem_optin, "a hidden size above 110,000");
  if (bytes > (48u << 10))
    cudaFuncSetAttribute(final_norm_plain_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
  launch_following(gpu.overlap, 1, final_norm_plain_kernel, grid, dim3(512), bytes, stream,
                   args.index, args.n_streams, d, args.streams, args.pre, args.norm, args.eps,
                   args.x.data, args.x.stride, gpu.overlap);
}

}  // namespace hadal::cuda
