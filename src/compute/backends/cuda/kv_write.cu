#include "compute/backends/cuda/async_copy.cuh"
#include "compute/backends/cuda/cache_rows.cuh"
#include "compute/backends/cuda/elements.cuh"
#include "compute/backends/cuda/kv_write.h"
#include "compute/backends/cuda/linear.h"
#include "compute/backends/cuda/scratch.h"

namespace hadal::cuda {

namespace {

constexpr int kThreads = 128;  // of a block that does one row; every warp sums the row for itself
constexpr int kWarps = kThreads / 32;

__device__ int warp_index() {
  return static_cast<int>(threadIdx.x) / 32;
}
__device__ int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}

// 1 / sqrt(mean(x^2) + eps), in every lane of the warp.
__device__ float rms_factor(const uint16_t* x, int n, float eps) {
  const float sum = warp_sum32(n, [&](int i) {
    const float v = bf16_to_float(x[i]);
    return v * v;
  });
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(sum, static_cast<float>(n)) + eps));
}
__device__ float normed(uint16_t x, uint16_t weight, float factor) {
  return snap_bf16(bf16_to_float(weight) * (bf16_to_float(x) * factor));
}

// Channel `i` of a vector of n whose last d_rope channels rotate by adjacent pairs; neighbouring
// lanes hold neighbouring channels, the even one in the even lane. All lanes of the warp take part.
__device__ float rotated(float x, int i, int n, int d_rope, const float* angles) {
  const float other = __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  const int at = i - (n - d_rope);
  if (at < 0) return x;
  const float c = angles[at & ~1], s = angles[at | 1];
  return snap_bf16((at & 1) == 0 ? x * c - other * s : other * s + x * c);
}

// Stores the pair of codes of two neighbouring lanes as a byte.
__device__ void store_pair(uint8_t* codes, int i, uint32_t code) {
  const uint32_t high = __shfl_down_sync(0xFFFFFFFFu, code, 1);
  if (i % 2 == 0) codes[i / 2] = static_cast<uint8_t>(code | high << 4);
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
  bool overlap;
};

__global__ void latent_kernel(const LatentJob job) {
  expect_weights(job.overlap, job.norm, job.d * 2);
  follow_previous(job.overlap);
  const int64_t t = blockIdx.x;
  const uint16_t* x = job.kv + t * job.kv_stride;
  uint8_t* record = job.out + t * job.out_stride;
  const float* angles = job.rope + t * job.d_rope;
  const float factor = rms_factor(x, job.d, job.eps);
  for (int g = warp_index(); g < job.d / 32; g += kWarps) {
    const int i = 32 * g + lane_index();
    const float v = rotated(normed(x[i], job.norm[i], factor), i, job.d, job.d_rope, angles);
    const uint32_t scale = aq8_scale(group_max<32>(fabsf(v)));
    record[i] = aq8_code(v, scale);
    if (lane_index() == 0) record[job.d + g] = static_cast<uint8_t>(scale);
  }
}

struct CompressJob {
  StepView step;
  SourceView source;
  const float* vg;
  int64_t vg_stride;
  const uint8_t* slots;
  int64_t slot_bytes;
  int64_t group_offset;
  const uint16_t* norm;
  const uint16_t* k_norm;
  const float* rope;
  uint16_t* latent;  // [T, d_head]
  uint16_t* key;     // [T, d_index]
  int32_t d_head, d_index, d_rope;
  float eps;
  bool overlap;
};

// True if the row's token ends a group whose entry is to be written.
__device__ bool ends_group(const CompressJob& job, int t) {
  const int p = job.step.positions[t];
  return (p + 1) % job.source.ratio == 0 && p >= job.step.seq(t).write_from;
}

constexpr int kMaxRatio = 8;

// Channel c of the softmax-weighted mean of the group that ends at row t, per channel.
__device__ float pooled(const float* const* members, int ratio, int d, int c) {
  float top = members[0][d + c];
  for (int m = 1; m < ratio; ++m) top = members[m][d + c] > top ? members[m][d + c] : top;
  float e[kMaxRatio], sum = 0;
#pragma unroll
  for (int m = 0; m < kMaxRatio; ++m) {
    if (m >= ratio) break;
    e[m] = static_cast<float>(exp_f64(members[m][d + c] - top));
    sum = sum + e[m];
  }
  float out = __fdiv_rn(e[0], sum) * members[0][c];
#pragma unroll
  for (int m = 1; m < kMaxRatio; ++m) {
    if (m >= ratio) break;
    out = out + __fdiv_rn(e[m], sum) * members[m][c];
  }
  return out;
}

// The latents before rotation. Rows that end no group give zeros, which nobody reads.
__global__ void group_kernel(const CompressJob job) {
  extern __shared__ uint16_t u[];  // [d_head]
  expect_weights(job.overlap, job.norm, job.d_head * 2);
  follow_previous(job.overlap);
  const int t = static_cast<int>(blockIdx.x);
  uint16_t* out = job.latent + static_cast<int64_t>(t) * job.d_head;
  if (!ends_group(job, t)) {
    for (int c = static_cast<int>(threadIdx.x); c < job.d_head; c += kThreads) out[c] = 0;
    return;
  }
  const int ratio = job.source.ratio, p = job.step.positions[t];
  const ops::BatchSeq& seq = job.step.seq(t);
  const auto* open =
      reinterpret_cast<const float*>(job.slots + seq.slot * job.slot_bytes + job.group_offset);
  const float* members[kMaxRatio];
  for (int m = 0; m < ratio; ++m) {
    const int q = p - ratio + 1 + m;
    members[m] = q < seq.first_position ? open + static_cast<int64_t>(m) * 2 * job.d_head
                                        : job.vg + job.step.row_at(seq, q) * job.vg_stride;
  }
  for (int c = static_cast<int>(threadIdx.x); c < job.d_head; c += kThreads)
    u[c] = bf16_from_float(ratio == 1 ? members[0][c] : pooled(members, ratio, job.d_head, c));
  __syncthreads();
  const float factor = rms_factor(u, job.d_head, job.eps);
  for (int c = static_cast<int>(threadIdx.x); c < job.d_head; c += kThreads)
    out[c] = bf16_from_float(normed(u[c], job.norm[c], factor));
}

// Rotates, quantises and stores the entry and its index key.
__global__ void entry_kernel(const CompressJob job) {
  expect_weights(job.overlap, job.k_norm, job.d_index * 2);
  follow_previous(job.overlap);
  const int t = static_cast<int>(blockIdx.x);
  if (!ends_group(job, t)) return;
  const float* angles = job.rope + static_cast<int64_t>(t) * job.d_rope;
  const int entry = job.step.positions[t] / job.source.ratio;
  const uint32_t* table = job.step.tables + job.step.seq(t).table_offset;
  const uint16_t* latent = job.latent + static_cast<int64_t>(t) * job.d_head;
  uint8_t* record = job.source.entry(table, entry);
  for (int g = warp_index(); g < job.d_head / 32; g += kWarps) {
    const int i = 32 * g + lane_index();
    const float v = rotated(bf16_to_float(latent[i]), i, job.d_head, job.d_rope, angles);
    const uint8_t scale = fq4e4_scale(group_max<16>(fabsf(v)));
    store_pair(record, i, fq4e4_code(v, scale));
    if (i % 16 == 0) record[job.d_head / 2 + i / 16] = scale;
  }
  const uint16_t* key = job.key + static_cast<int64_t>(t) * job.d_index;
  const float factor = rms_factor(key, job.d_index, job.eps);
  for (int g = warp_index(); g < job.d_index / 32; g += kWarps) {
    const int i = 32 * g + lane_index();
    const float v =
        rotated(normed(key[i], job.k_norm[i], factor), i, job.d_index, job.d_rope, angles);
    const uint32_t scale = fq4e8_scale(group_max<32>(fabsf(v)));
    store_pair(job.source.key_codes(table, entry), i, fq4e8_code(v, scale));
    if (lane_index() == 0) job.source.key_scales(table, entry)[g] = static_cast<uint8_t>(scale);
  }
}

// qr = AQ8 values of RMS(x; norm): what both products of a query take.
__global__ void query_norm_kernel(const uint16_t* q_raw, int64_t stride, const uint16_t* norm,
                                  int n, float eps, bool overlap, uint16_t* qr) {
  expect_weights(overlap, norm, n * 2);
  follow_previous(overlap);
  const int64_t t = blockIdx.x;
  const uint16_t* x = q_raw + t * stride;
  const float factor = rms_factor(x, n, eps);
  for (int g = warp_index(); g < n / 32; g += kWarps) {
    const int i = 32 * g + lane_index();
    const float v = normed(x[i], norm[i], factor);
    const uint32_t scale = aq8_scale(group_max<32>(fabsf(v)));
    qr[t * n + i] = bf16_from_float(aq8_value(v, scale));
  }
}

struct QueryJob {
  uint16_t* q;
  int64_t q_stride;
  const uint16_t* index_raw;  // [T, index_heads * d_index]
  uint8_t* iq;
  int64_t iq_stride;
  const float* rope;
  int32_t n_rows, n_heads, index_heads, d_head, d_index, d_rope;
  bool overlap;
};

// One warp: an index head of a row (rotate, quantise, pack), or 32 pairs of the row's q (rotate).
__global__ void query_rope_kernel(const QueryJob job) {
  follow_previous(job.overlap);
  const int pairs = job.n_heads * job.d_rope / 2;
  const int items = job.index_heads + (pairs + 31) / 32;
  const int64_t w = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  const int64_t t = w / items;
  const int item = static_cast<int>(w % items);
  if (t >= job.n_rows) return;
  const float* angles = job.rope + t * job.d_rope;
  if (item >= job.index_heads) {
    const int pair = (item - job.index_heads) * 32 + lane_index();
    if (pair >= pairs) return;
    const int half = job.d_rope / 2, head = pair / half, at = pair % half;
    uint16_t* x = job.q + t * job.q_stride + static_cast<int64_t>(head + 1) * job.d_head -
                  job.d_rope + 2 * at;
    const float c = angles[2 * at], s = angles[2 * at + 1];
    const float x0 = bf16_to_float(x[0]), x1 = bf16_to_float(x[1]);
    x[0] = bf16_from_float(x0 * c - x1 * s);
    x[1] = bf16_from_float(x0 * s + x1 * c);
    return;
  }
  const uint16_t* x = job.index_raw + (t * job.index_heads + item) * job.d_index;
  uint8_t* record = job.iq + t * job.iq_stride +
                    static_cast<int64_t>(item) * (job.d_index / 2 + job.d_index / 32);
  for (int g = 0; g < job.d_index / 32; ++g) {
    const int i = 32 * g + lane_index();
    const float v = rotated(bf16_to_float(x[i]), i, job.d_index, job.d_rope, angles);
    const uint32_t scale = fq4e8_scale(group_max<32>(fabsf(v)));
    store_pair(record, i, fq4e8_code(v, scale));
    if (lane_index() == 0) record[job.d_index / 2 + g] = static_cast<uint8_t>(scale);
  }
}

}  // namespace

void launch_latent_write(const ops::LatentArgs& args, const Gpu& gpu, cudaStream_t stream) {
  if (args.kv.n_rows == 0) return;
  const auto d = static_cast<int32_t>(args.kv.n_cols);
  HADAL_CHECK(d % 32 == 0 && args.d_rope % 2 == 0 && args.d_rope <= d, "latent_write shapes");
  const LatentJob job{args.kv.data,  args.kv.stride,  args.norm, args.rope,
                      args.out.data, args.out.stride, d,         args.d_rope,
                      args.eps,      gpu.overlap};
  launch_following(gpu.overlap, 1, latent_kernel, dim3(static_cast<unsigned>(args.kv.n_rows)),
                   dim3(kThreads), 0, stream, job);
}

uint64_t compress_scratch_bytes(const ops::Ops::Limits& limits) {
  const auto rows = static_cast<uint64_t>(limits.max_rows);
  return scratch_padded(rows * static_cast<uint64_t>(limits.d_head) * 2) +
         scratch_padded(rows * static_cast<uint64_t>(limits.d_index) * 2);
}

void launch_compress(const ops::CompressArgs& args, ops::Ops::Scratch scratch, const Gpu& gpu,
                     cudaStream_t stream) {
  if (args.n_rows == 0) return;
  const ops::KvSource& source = args.layout->sources[static_cast<size_t>(args.source)];
  HADAL_CHECK(args.d_head % 32 == 0 && args.d_index % 32 == 0 && source.ratio <= kMaxRatio,
              "compress shapes");
  ScratchCutter cut(scratch);
  const int64_t n = args.n_rows;
  CompressJob job{};
  job.step = step_view(*args.rows);
  job.source = source_view(*args.kv, *args.layout, args.source);
  job.vg = args.vg.data;
  job.vg_stride = args.vg.stride;
  job.slots = reinterpret_cast<const uint8_t*>(args.kv->slots);
  job.slot_bytes = args.slot->slot_bytes;
  job.group_offset = source.group_offset;
  job.norm = args.norm;
  job.k_norm = args.k_norm;
  job.rope = args.rope;
  job.latent = cut.take<uint16_t>(n * args.d_head);
  job.key = cut.take<uint16_t>(n * args.d_index);
  job.d_head = args.d_head;
  job.d_index = args.d_index;
  job.d_rope = args.d_rope;
  job.eps = args.eps;
  job.overlap = gpu.overlap;
  const dim3 grid(static_cast<unsigned>(n));
  const auto shared = static_cast<size_t>(args.d_head) * 2;
  launch_following(gpu.overlap, 1, group_kernel, grid, dim3(kThreads), shared, stream, job);
  ops::LinearArgs linear;
  linear.weight = args.wk;
  linear.x = {job.latent, n, args.d_head};
  linear.plain_input = true;
  linear.y = {job.key, n, args.d_index};
  launch_linear(linear, cut.rest(), gpu, stream);
  launch_following(gpu.overlap, 1, entry_kernel, grid, dim3(kThreads), 0, stream, job);
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
  HADAL_CHECK(lora % 32 == 0 && args.d_index % 32 == 0, "query shapes");
  ScratchCutter cut(scratch);
  auto* qr = cut.take<uint16_t>(n * lora);
  QueryJob job{};
  job.q = args.q.data;
  job.q_stride = args.q.stride;
  job.rope = args.rope;
  job.n_rows = static_cast<int32_t>(n);
  job.n_heads = static_cast<int32_t>(args.wq->n() / args.d_head);
  job.d_head = args.d_head;
  job.d_index = args.d_index;
  job.d_rope = args.d_rope;
  job.overlap = gpu.overlap;
  launch_following(gpu.overlap, 1, query_norm_kernel, dim3(static_cast<unsigned>(n)),
                   dim3(kThreads), 0, stream, args.q_raw.data, args.q_raw.stride, args.norm,
                   static_cast<int>(lora), args.eps, gpu.overlap, qr);
  uint16_t* raw = nullptr;
  if (args.index_wq != nullptr) {
    raw = cut.take<uint16_t>(n * args.index_wq->n());
    job.index_raw = raw;
    job.iq = args.iq.data;
    job.iq_stride = args.iq.stride;
    job.index_heads = static_cast<int32_t>(args.index_wq->n() / args.d_index);
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
  const int64_t pairs = static_cast<int64_t>(job.n_heads) * args.d_rope / 2;
  const int64_t items = n * (job.index_heads + (pairs + 31) / 32);
  launch_following(gpu.overlap, 1, query_rope_kernel,
                   dim3(static_cast<unsigned>((items + kWarps - 1) / kWarps)), dim3(kThreads), 0,
                   stream, job);
}

}  // namespace hadal::cuda
