#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/channels.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/kv_write.h"
#include "compute/backends/cuda/linear.h"
#include "compute/backends/cuda/scratch.h"

namespace hadal::cuda {

namespace {

constexpr int kMaxUnits = 1024;  // of a row that a block normalises, a thread each

__device__ int warp_index() {
  return static_cast<int>(threadIdx.x) / 32;
}
__device__ int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}

// The block's row of n channels, of which a thread has the unit `x` (zeros past its end): the norm
// of the unit. Every warp adds up the whole row, so that one barrier is enough. `squares`: [n].
__device__ uint4 normed_unit(uint4 x, uint4 weight, int n, float eps, float* squares) {
  const int at = static_cast<int>(threadIdx.x) * kUnitChannels;
  if (at < n) store_squares(squares + at, x);
  __syncthreads();
  return norm_unit(x, weight, rms_factor(sum_terms(squares, n), n, eps));
}

// AQ8 of 32 channels that four neighbouring lanes have: the codes of this lane's unit, and their
// scale. All lanes of the warp take part.
__device__ uint2 aq8_unit(const Channels& x, uint32_t& scale) {
  float top = 0;
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) top = fmaxf(top, fabsf(x.v[i]));
  scale = aq8_scale(group_max<4>(top));
  uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v = make_float2(over_e8m0(x.v[2 * i], scale), over_e8m0(x.v[2 * i + 1], scale));
    pair[i] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3);
  }
  return make_uint2(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16);
}

struct LatentJob {
  const uint16_t* kv;
  int64_t kv_stride;
  const uint16_t* norm;
  const float* rope;
  uint8_t* out;
  int64_t out_stride;
  int32_t d, d_rope;
  float eps;
  bool wide_in, wide_norm, wide_out;
  bool overlap;
};

// A block a row, a thread a unit of it.
__global__ void __launch_bounds__(kMaxUnits, 1) latent_kernel(const LatentJob job) {
  extern __shared__ __align__(16) float squares[];
  const int at = static_cast<int>(threadIdx.x) * kUnitChannels;
  const bool exists = at < job.d;
  const uint4 weight = exists ? fetch_unit(job.norm + at, job.wide_norm) : uint4{};
  follow_previous(job.overlap);
  const int64_t t = blockIdx.x;
  const uint4 bits = exists ? fetch_unit(job.kv + t * job.kv_stride + at, job.wide_in) : uint4{};
  const int turned = at - (job.d - job.d_rope);  // its first channel among those that rotate
  float2 angle[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (exists && turned + 2 * i >= 0)
      angle[i] = *reinterpret_cast<const float2*>(job.rope + t * job.d_rope + turned + 2 * i);
  }
  Channels x = widen(normed_unit(bits, weight, job.d, job.eps, squares));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (turned + 2 * i < 0) continue;
    const float a = x.v[2 * i], b = x.v[2 * i + 1];
    x.v[2 * i] = snap_bf16(a * angle[i].x - b * angle[i].y);
    x.v[2 * i + 1] = snap_bf16(a * angle[i].y + b * angle[i].x);
  }
  uint32_t scale;
  const uint2 codes = aq8_unit(x, scale);
  if (!exists) return;
  uint8_t* record = job.out + t * job.out_stride;
  if (job.wide_out) {
    __stcg(reinterpret_cast<uint2*>(record + at), codes);
  } else {
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i)
      record[at + i] = static_cast<uint8_t>((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
  }
  if (at % 32 == 0) record[job.d + at / 32] = static_cast<uint8_t>(scale);
}

// qr = AQ8 values of RMS(x; norm): what both products of a query take. A block a row, a thread a
// unit of it.
__global__ void __launch_bounds__(kMaxUnits, 1)
    query_norm_kernel(const uint16_t* q_raw, int64_t stride, const uint16_t* norm, int n, float eps,
                      bool wide, bool wide_norm, bool overlap, uint16_t* qr) {
  extern __shared__ __align__(16) float squares[];
  const int at = static_cast<int>(threadIdx.x) * kUnitChannels;
  const bool exists = at < n;
  const uint4 weight = exists ? fetch_unit(norm + at, wide_norm) : uint4{};
  follow_previous(overlap);
  const int64_t t = blockIdx.x;
  const uint4 bits = exists ? fetch_unit(q_raw + t * stride + at, wide) : uint4{};
  uint32_t scale;
  const uint2 codes = aq8_unit(widen(normed_unit(bits, weight, n, eps, squares)), scale);
  if (!exists) return;
  const float factor = e8m0_to_float(scale);
  Channels out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v =
        e4m3x2_to_float(static_cast<uint16_t>((i < 2 ? codes.x : codes.y) >> i % 2 * 16));
    out.v[2 * i] = v.x * factor;
    out.v[2 * i + 1] = v.y * factor;
  }
  store_word(qr + t * n + at, narrow(out));
}

struct QueryJob {
  uint16_t* q;
  int64_t q_stride;
  const uint16_t* index_raw;  // [T, index_heads * d_index]
  uint8_t* iq;
  int64_t iq_stride;
  const float* rope;
  int32_t n_heads, index_heads, d_head, d_index, d_rope;
  int32_t index_items;  // warps of a row's index heads
  bool wide_iq;         // records and their codes begin at multiples of 4 bytes
  bool overlap;
};

constexpr int kRopeWarps = 4;  // of a block

// Rotates kPairs pairs from pair `at` of the row's heads on: of four, 16 bytes of q.
template <int kPairs>
__device__ void rotate_query(const QueryJob& job, int64_t t, int at) {
  const int half = job.d_rope / 2, head = at / half, pair = at % half;
  const auto* angles = reinterpret_cast<const float2*>(job.rope + t * job.d_rope) + pair;
  auto* x = reinterpret_cast<uint32_t*>(job.q + t * job.q_stride +
                                        static_cast<int64_t>(head + 1) * job.d_head - job.d_rope) +
            pair;
  uint32_t word[kPairs];
  if constexpr (kPairs == 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(x);
    word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
  } else {
    word[0] = x[0];
  }
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const float2 a = angles[i];
    const float x0 = bf16_low(word[i]), x1 = bf16_high(word[i]);
    word[i] = bf16_pair(x0 * a.x - x1 * a.y, x0 * a.y + x1 * a.x);
  }
  if constexpr (kPairs == 4) {
    store_word(x, make_uint4(word[0], word[1], word[2], word[3]));
  } else {
    x[0] = word[0];
  }
}

// Unit `u` of the row's index heads: rotate, quantise, pack. Units of a warp are neighbours, and
// all its lanes take part.
__device__ void pack_index_unit(const QueryJob& job, int64_t t, int u) {
  const int per_head = job.d_index / kUnitChannels;
  const bool exists = u < job.index_heads * per_head;
  const int head = exists ? u / per_head : 0, at = exists ? u % per_head * kUnitChannels : 0;
  const uint16_t* from = job.index_raw + (t * job.index_heads + head) * job.d_index + at;
  Channels x = widen(*reinterpret_cast<const uint4*>(from));
  const int turned = at - (job.d_index - job.d_rope);
#pragma unroll
  for (int i = 0; i < kUnitChannels; i += 2) {
    if (turned + i < 0) continue;
    const float2 a = *reinterpret_cast<const float2*>(job.rope + t * job.d_rope + turned + i);
    const float x0 = x.v[i], x1 = x.v[i + 1];
    x.v[i] = snap_bf16(x0 * a.x - x1 * a.y);
    x.v[i + 1] = snap_bf16(x0 * a.y + x1 * a.x);
  }
  float top = 0;
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) top = fmaxf(top, fabsf(x.v[i]));
  const uint32_t scale = fq4e8_scale(group_max<4>(top));
  if (!exists) return;
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < kUnitChannels; ++i) codes |= fq4e8_code(x.v[i], scale) << 4 * i;
  uint8_t* record = job.iq + t * job.iq_stride +
                    static_cast<int64_t>(head) * (job.d_index / 2 + job.d_index / 32);
  if (job.wide_iq) {
    *reinterpret_cast<uint32_t*>(record + at / 2) = codes;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) record[at / 2 + i] = static_cast<uint8_t>(codes >> 8 * i);
  }
  if (at % 32 == 0) record[job.d_index / 2 + at / 32] = static_cast<uint8_t>(scale);
}

// One warp: 32 units of the index heads of row blockIdx.x, or 32 times kPairs pairs of its q.
template <int kPairs>
__global__ void query_rope_kernel(const QueryJob job) {
  follow_previous(job.overlap);
  const int64_t t = blockIdx.x;
  const int item = static_cast<int>(blockIdx.y) * kRopeWarps + warp_index();
  if (item < job.index_items) {
    pack_index_unit(job, t, item * 32 + lane_index());
    return;
  }
  const int at = ((item - job.index_items) * 32 + lane_index()) * kPairs;
  if (at < job.n_heads * job.d_rope / 2) rotate_query<kPairs>(job, t, at);
}

// Threads of a block that does a row of n channels.
unsigned unit_threads(int64_t n) {
  return static_cast<unsigned>((n / kUnitChannels + 31) / 32 * 32);
}

}  // namespace

void launch_latent_write(const ops::LatentArgs& args, const Gpu& gpu, cudaStream_t stream) {
  if (args.kv.n_rows == 0) return;
  const auto d = static_cast<int32_t>(args.kv.n_cols);
  HADAL_CHECK(
      d % 32 == 0 && d <= kMaxUnits * kUnitChannels && args.d_rope % 2 == 0 && args.d_rope <= d,
      "latent_write shapes");
  const bool wide_out =
      reinterpret_cast<uintptr_t>(args.out.data) % 8 == 0 && args.out.stride % 8 == 0;
  const LatentJob job{.kv = args.kv.data,
                      .kv_stride = args.kv.stride,
                      .norm = args.norm,
                      .rope = args.rope,
                      .out = args.out.data,
                      .out_stride = args.out.stride,
                      .d = d,
                      .d_rope = args.d_rope,
                      .eps = args.eps,
                      .wide_in = units_aligned(args.kv.data, args.kv.stride),
                      .wide_norm = units_aligned(args.norm, d),
                      .wide_out = wide_out,
                      .overlap = gpu.overlap};
  launch_following(gpu.overlap, 1, latent_kernel, dim3(static_cast<unsigned>(args.kv.n_rows)),
                   dim3(unit_threads(d)), static_cast<size_t>(d) * 4, stream, job);
}

uint64_t query_scratch_bytes(const ops::Ops::Limits& limits) {
  // The index heads of a row are no wider than the widest input of a linear (step plan's Limits).
  const auto rows = static_cast<uint64_t>(limits.max_rows);
  return 2 * scratch_padded(rows * static_cast<uint64_t>(limits.widest_k) * 2);
}

void launch_query(const ops::QueryArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                  cudaStream_t stream) {
  const int64_t n = args.q_raw.n_rows, lora = args.q_raw.n_cols;
  if (n == 0) return;
  HADAL_CHECK(lora % 32 == 0 && lora <= kMaxUnits * kUnitChannels && args.d_index % 32 == 0 &&
                  args.d_rope % 2 == 0 && args.d_head % 2 == 0 && args.q.stride % 2 == 0,
              "query shapes");
  ScratchCutter cut(scratch);
  auto* qr = cut.take<uint16_t>(n * lora);
  QueryJob job{};
  job.q = args.q.data;
  job.q_stride = args.q.stride;
  job.rope = args.rope;
  job.n_heads = static_cast<int32_t>(args.wq->n() / args.d_head);
  job.d_head = args.d_head;
  job.d_index = args.d_index;
  job.d_rope = args.d_rope;
  job.overlap = gpu.overlap;
  launch_following(gpu.overlap, 1, query_norm_kernel, dim3(static_cast<unsigned>(n)),
                   dim3(unit_threads(lora)), static_cast<size_t>(lora) * 4, stream, args.q_raw.data,
                   args.q_raw.stride, args.norm, static_cast<int>(lora), args.eps,
                   units_aligned(args.q_raw.data, args.q_raw.stride),
                   units_aligned(args.norm, lora), gpu.overlap, qr);
  uint16_t* raw = nullptr;
  if (args.index_wq != nullptr) {
    raw = cut.take<uint16_t>(n * args.index_wq->n());
    job.index_raw = raw;
    job.iq = args.iq.data;
    job.iq_stride = args.iq.stride;
    job.index_heads = static_cast<int32_t>(args.index_wq->n() / args.d_index);
    job.index_items = (job.index_heads * (args.d_index / kUnitChannels) + 31) / 32;
    job.wide_iq = reinterpret_cast<uintptr_t>(args.iq.data) % 4 == 0 && args.iq.stride % 4 == 0 &&
                  args.d_index % 128 == 0;
  }
  ops::LinearArgs linear;
  linear.weight = args.wq;
  linear.x = {qr, n, lora};
  linear.plain_input = true;  // qr is quantised already
  linear.y = args.q;
  launch_linear(linear, cut.rest(), gpu, stream);
  if (raw != nullptr) {
    linear.weight = args.index_wq;
    linear.y = {raw, n, args.index_wq->n()};
    launch_linear(linear, cut.rest(), gpu, stream);
  }
  // Units of q where rows, heads and what rotates of them begin at multiples of 16 bytes.
  const bool wide = units_aligned(args.q.data, args.q.stride) &&
                    units_aligned(args.rope, args.d_rope) && args.d_head % kUnitChannels == 0;
  const int per_warp = wide ? 32 * 4 : 32;
  const int pairs = job.n_heads * args.d_rope / 2;
  const int items = job.index_items + (pairs + per_warp - 1) / per_warp;
  launch_following(
      gpu.overlap, 1, wide ? query_rope_kernel<4> : query_rope_kernel<1>,
      dim3(static_cast<unsigned>(n), static_cast<unsigned>((items + kRopeWarps - 1) / kRopeWarps)),
      dim3(kRopeWarps * 32), 0, stream, job);
}

}  // namespace hadal::cuda
